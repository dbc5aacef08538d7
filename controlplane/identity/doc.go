// SPDX-License-Identifier: Apache-2.0

// Package identity makes and checks what proves who somebody is: the cluster's certificates, API keys and tokens; it
// writes certificates into the directory it is given and keys into the catalog, and has no default secret of any kind.
package identity
