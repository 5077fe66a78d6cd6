/**
 * What may name a command: one bound for the queue that appends it, the gateway that carries it, the daemon's journal and a
 * node's id, so that no part takes an id that a later one cannot use.
 */
export const maxCommandIdLength = 128;

/** Printable ASCII without spaces: it survives logs, headers and file records unescaped, and its length is its size in bytes. */
const form = new RegExp(`^[\\x21-\\x7e]{1,${maxCommandIdLength}}$`);

/** Leaves room for what names the run in `<run>/<node id>`. */
export const maxNodeIdLength = 63;

/** Longest name of a run: with a slash and any node id behind it, it is still a command id. */
export const maxCommandPrefixLength = maxCommandIdLength - 1 - maxNodeIdLength;

/** True for 1 to 128 printable ASCII characters without a space. */
export const isCommandId = (value: string): boolean => form.test(value);

/** True for 1 to 63 characters that a node's SPIFFE id can hold. */
export const isNodeId = (value: string): boolean => /^[A-Za-z0-9._-]{1,63}$/.test(value);
