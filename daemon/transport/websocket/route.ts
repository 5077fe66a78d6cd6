/** The way over a WebSocket, for networks whose proxies take TLS apart (WS-017). */

import { ControlError } from '../../../domain/errors.ts';
import type { GatewayRoute } from '../wire.ts';
import { dialSession, postRenew, type WebSocketSettings } from './dial.ts';
import { WebSocketWire } from './wire.ts';

export const webSocketRoute = (settings: WebSocketSettings): GatewayRoute => ({
  shown: () => settings.url,
  async openSession(context) {
    // WS-029: what comes through a proxy is believed by its signature alone.
    if (context.commandRoots === 0)
      throw new ControlError('INVALID_STATE', 'this daemon holds no command-signing root, and over a WebSocket nothing else is believed', {
        details: {
          reason: 'no-command-root',
          hint: 'take the section websocket out of the configuration until the daemon has joined anew',
        },
      });
    return new WebSocketWire(await dialSession({ ...context, settings }));
  },
  renew: (request, context) => postRenew(request, { ...context, settings }),
});
