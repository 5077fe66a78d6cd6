/** Durations and instants: milliseconds, instants as Unix milliseconds. Time is always an argument, never read here. */
export const second = 1_000;
export const minute = 60 * second;
export const hour = 60 * minute;
export const day = 24 * hour;

/** ISO 8601 in UTC, to the second: how instants are shown to people. */
export const showInstant = (ms: number): string => new Date(ms).toISOString().replace(/\.\d{3}Z$/, 'Z');
