// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// Logs are the logs of one preset in the API.
type Logs struct {
	client     *Client
	collection string
}

// Logs are the logs of a preset: for who treats those of all presets alike.
func (c *Client) Logs(preset string) Logs { return Logs{client: c, collection: "/" + preset + "s"} }

// LogPage is one page of a listing, in order of name.
type LogPage struct {
	Items []LogDocument `json:"items"`
	Next  string        `json:"next"`
}

// Create creates a log, or finds the very same one there already.
func (s Logs) Create(ctx context.Context, tenant, namespace string, spec LogSpec) (LogDocument, error) {
	var d LogDocument
	return d, s.client.do(ctx, http.MethodPost, s.all(tenant, namespace), "", spec, &d)
}

// Get gets one log.
func (s Logs) Get(ctx context.Context, tenant, namespace, name string) (LogDocument, error) {
	var d LogDocument
	return d, s.client.do(ctx, http.MethodGet, s.one(tenant, namespace, name), "", nil, &d)
}

// List gets a page of at most limit logs (0: the server's default) from a cursor ("": the first).
func (s Logs) List(ctx context.Context, tenant, namespace, cursor string, limit int) (LogPage, error) {
	q := url.Values{}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	path := s.all(tenant, namespace)
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	var p LogPage
	return p, s.client.do(ctx, http.MethodGet, path, "", nil, &p)
}

// Update changes what the patch names. With a version other than 0 it does so only if the log is still at it, else it
// fails with code.Conflict.
func (s Logs) Update(ctx context.Context, tenant, namespace, name string, version uint64, patch LogPatch) (LogDocument, error) {
	var d LogDocument
	return d, s.client.do(ctx, http.MethodPatch, s.one(tenant, namespace, name), ifMatch(version), patch, &d)
}

// Delete deletes a log and its records; version as in Update.
func (s Logs) Delete(ctx context.Context, tenant, namespace, name string, version uint64) error {
	return s.client.do(ctx, http.MethodDelete, s.one(tenant, namespace, name), ifMatch(version), nil, nil)
}

func (s Logs) all(tenant, namespace string) string {
	return "/v1/tenants/" + url.PathEscape(tenant) + "/namespaces/" + url.PathEscape(namespace) + s.collection
}

func (s Logs) one(tenant, namespace, name string) string {
	return s.all(tenant, namespace) + "/" + url.PathEscape(name)
}

// CreateStream creates a stream; see Logs.Create.
func (c *Client) CreateStream(ctx context.Context, tenant, namespace string, spec StreamSpec) (Stream, error) {
	d, err := c.Logs(PresetStream).Create(ctx, tenant, namespace, LogSpec(spec))
	return Stream(d), err
}

// Stream gets one stream.
func (c *Client) Stream(ctx context.Context, tenant, namespace, name string) (Stream, error) {
	d, err := c.Logs(PresetStream).Get(ctx, tenant, namespace, name)
	return Stream(d), err
}

// Streams gets a page of streams; see Logs.List.
func (c *Client) Streams(ctx context.Context, tenant, namespace, cursor string, limit int) (StreamList, error) {
	p, err := c.Logs(PresetStream).List(ctx, tenant, namespace, cursor, limit)
	l := StreamList{Next: p.Next}
	for i := range p.Items {
		l.Items = append(l.Items, Stream(p.Items[i]))
	}
	return l, err
}

// UpdateStream changes what the patch names; see Logs.Update.
func (c *Client) UpdateStream(ctx context.Context, tenant, namespace, name string, version uint64, patch StreamPatch) (Stream, error) {
	d, err := c.Logs(PresetStream).Update(ctx, tenant, namespace, name, version, LogPatch(patch))
	return Stream(d), err
}

// DeleteStream deletes a stream and its records; see Logs.Delete.
func (c *Client) DeleteStream(ctx context.Context, tenant, namespace, name string, version uint64) error {
	return c.Logs(PresetStream).Delete(ctx, tenant, namespace, name, version)
}

// CreateCache creates a cache; see Logs.Create.
func (c *Client) CreateCache(ctx context.Context, tenant, namespace string, spec CacheSpec) (Cache, error) {
	d, err := c.Logs(PresetCache).Create(ctx, tenant, namespace, LogSpec(spec))
	return Cache(d), err
}

// CreateQueue creates a queue; see Logs.Create.
func (c *Client) CreateQueue(ctx context.Context, tenant, namespace string, spec QueueSpec) (Queue, error) {
	d, err := c.Logs(PresetQueue).Create(ctx, tenant, namespace, LogSpec(spec))
	return Queue(d), err
}
