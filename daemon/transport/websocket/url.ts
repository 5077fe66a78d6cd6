/** The address of a WebSocket listener: wss, a host, a port; its paths are the protocol's. */
export const webSocketUrlForm = 'must be a wss URL of host and port alone, such as wss://gateway.example.com:8444';

export function isWebSocketUrl(text: string): boolean {
  // The parser passes over line ends and blanks; a unit and a script would not.
  const url = /^[!-~]+$/.test(text) && URL.canParse(text) ? new URL(text) : null;
  if (url?.protocol !== 'wss:' || url.hostname === '' || url.username !== '' || url.password !== '') return false;
  return url.pathname === '/' && url.search === '' && url.hash === '';
}
