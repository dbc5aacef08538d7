// SPDX-License-Identifier: Apache-2.0

package code

// table is the one place where a code gets its name, class, meaning and remedy. The reference page
// docs/reference/errors.md is generated from it.
var table = [...]struct {
	name    string
	class   Class
	meaning string
	remedy  string
}{
	Internal:         {"internal", ClassUnknown, "A defect, or a failure nobody foresaw.", "look in the log of the node that answered and report it"},
	BadRequest:       {"bad_request", ClassFatal, "The request is well framed but says something that makes no sense.", "correct the request as the message says"},
	Unsupported:      {"unsupported", ClassFatal, "This node does not know the request, flag or feature.", "upgrade the node, or do without the feature"},
	Unauthenticated:  {"unauthenticated", ClassFatal, "There is no valid credential on the connection.", "authenticate with a fresh token"},
	PermissionDenied: {"permission_denied", ClassFatal, "The credential does not grant this action on this resource.", "ask for a grant of the action on the resource"},
	NotFound:         {"not_found", ClassFatal, "Nothing has that name or id, or the caller may not know that it exists.", "check the name and the tenant"},
	AlreadyExists:    {"already_exists", ClassFatal, "Something else has that name.", "choose another name or use what exists"},
	TooLarge:         {"too_large", ClassFatal, "A record, key, header, batch or frame exceeds its limit.", "make it smaller than the limit in the details"},
	CorruptBatch:     {"corrupt_batch", ClassFatal, "A batch fails its checksum or breaks its format.", "encode the batch again; if it repeats, suspect memory or the network path"},
	NotLeader:        {"not_leader", ClassRefused, "This node does not lead the shard.", "send it to the address in the error"},
	Opening:          {"opening", ClassRefused, "The leader is still opening the shard.", "try again shortly"},
	Unavailable:      {"unavailable", ClassRefused, "Nobody can serve this at the moment.", "try again later"},
	ShuttingDown:     {"shutting_down", ClassRefused, "The node is going away.", "connect to another node or try again later"},
	Overloaded:       {"overloaded", ClassRefused, "A bound of the node or a quota of the tenant is reached.", "slow down and try again after the given time"},
	StorageFull:      {"storage_full", ClassRefused, "The disk or the log's byte bound is full.", "free or add space, or shorten retention; writes resume by themselves"},
	Quarantined:      {"quarantined", ClassFatal, "The shard's data on this node is damaged and was taken out of service.", "run margay log verify on the node's data directory; margay log repair serves what is sound of a shard's only copy"},
	OutOfRange:       {"out_of_range", ClassFatal, "The offset is not in the log: expired, or never written.", "start at an offset between earliest and latest in the details"},
	Cut:              {"cut", ClassFatal, "The log was cut below the position after a failover; what lay behind it is not in the log.", "resume at the offset in the details"},
	OutOfOrder:       {"out_of_order", ClassFatal, "The producer sequence does not follow the last one.", "continue after the last sequence in the details"},
	ProducerUnknown:  {"producer_unknown", ClassFatal, "The shard has forgotten the producer.", "begin again with a new producer id"},
	ProducersFull:    {"producers_full", ClassRefused, "The shard remembers as many producers as it may.", "try again later or publish with fewer producers"},
	OutcomeUnknown:   {"outcome_unknown", ClassUnknown, "The request was sent and its answer was lost.", "send it again with the same producer and sequence"},
	Timeout:          {"timeout", ClassUnknown, "The time given ran out before the answer was known.", "allow more time, or send it again with the same producer and sequence"},
	Cancelled:        {"cancelled", ClassUnknown, "The caller gave up before the answer was known.", "nothing to do"},
	SlowConsumer:     {"slow_consumer", ClassRefused, "The subscriber's queue overran and its policy is to be cut off.", "read faster, choose another policy, or resume at the offset in the details"},
	Protocol:         {"protocol", ClassFatal, "The peer broke the framing or the order of frames; the connection is closed.", "check that the other end speaks margay, and report it"},
	Conflict:         {"conflict", ClassFatal, "A comparison failed: the state is not what the request expected.", "read the current state and decide again"},
	Closed:           {"closed", ClassFatal, "The handle or connection was closed by its own side.", "open a new one"},
	TooMany:          {"too_many", ClassRefused, "A count (connections, lanes, subscriptions) is at its limit.", "close some, or raise the limit in the details"},
	BufferFull:       {"buffer_full", ClassRefused, "The client's own memory bound is reached.", "wait for acknowledgements, or raise the bound"},
	Deleted:          {"deleted", ClassFatal, "The log or the durable subscription was deleted while it was in use.", "stop using it; a new one of the same name shares nothing with it"},
	TakenOver:        {"taken_over", ClassFatal, "The durable subscription was opened again by somebody else, who goes on where it stands.", "let the newer holder go on; opening it again takes it back"},
	NotANumber:       {"not_a_number", ClassFatal, "A number was to be added to a value that is no 64-bit decimal number, or the sum is none.", "set the key to a number, or add another one"},
	NoLongerOwner:    {"no_longer_owner", ClassFatal, "The claim has ended: it timed out, or the message was settled or handed to somebody else.", "stop working on it; whoever holds it now settles it"},
}
