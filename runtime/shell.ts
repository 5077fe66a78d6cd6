/** Text that a POSIX shell reads. Between single quotes it expands nothing; a quote itself is closed, escaped, opened again. */
export const shellQuoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
