/**
 * How node is started for a gateway: with room for what arriving nodes leave behind. Handshakes make garbage fast, and in the
 * small young generation that node begins with, half of it is taken for old; the full collections that follow stop every session
 * for tens of milliseconds (measured: 34 of them while 2,000 nodes arrived).
 *
 * Flags of the command line, because the size of the young generation is fixed before the first line of a program runs.
 */
export const gatewayNodeFlags: readonly string[] = Object.freeze(['--min-semi-space-size=16', '--max-semi-space-size=16']);
