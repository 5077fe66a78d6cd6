/**
 * DHCP beside the site's own server (PXE 2.1, "proxyDHCP"): gives no addresses, and names loader and script to the machines that a run waits
 * for. Off unless the owner says so. Whom it answers and with what is proxy-answer.ts.
 *
 * Three sockets: one hears what is broadcast; one, bound to our address on the provisioning network, answers, so that an answer goes out of
 * that network's interface and no other; one is the boot server's port, for firmware that asks there once it has its address.
 *
 * Threat: anybody on the network can ask in a machine's name, and learns the name of a loader and the URL of a script, which it could ask
 * for anyway. Strangers get silence; answers go to the link's broadcast, or to the sender alone; each machine is answered a few times a
 * second, whoever floods.
 */
import type { Socket } from 'node:dgram';
import type { BootConfig } from '../config.ts';
import type { BootDesk } from './desk.ts';
import { type DhcpRequest, encodeProxyAnswer, noAddress, parseDhcp } from './dhcp-packets.ts';
import type { BootPorts } from './ports.ts';
import { type ProxyDoor, proxyAnswer, whyNotOurs } from './proxy-answer.ts';
import { scriptPath } from './script.ts';
import { boundUdp, type UdpPlace } from './udp.ts';

type ProxyConfig = NonNullable<BootConfig['proxyDhcp']>;

/** To one machine: a boot asks about five times in half a minute, each card of it. */
const most = Object.freeze({ answers: 10, everyMs: 1_000, machines: 4_096 });

export interface ProxyDhcp {
  /** bootDhcp and bootServer: host:port */
  readonly addresses: Readonly<Record<string, string>>;
  close(): Promise<void>;
}

/** @throws PORT_TAKEN */
export async function listenProxyDhcp(ports: BootPorts, desk: BootDesk, config: ProxyConfig): Promise<ProxyDhcp> {
  const server = config.address ?? ports.config.host;
  const sockets: Socket[] = [];
  const close = async (): Promise<void> => {
    for (const socket of sockets.splice(0)) await new Promise<void>((resolve) => socket.close(() => resolve()));
  };
  const open = async (place: Omit<UdpPlace, 'who' | 'setBy'>, setting: string): Promise<Socket> => {
    const socket = await boundUdp({ ...place, who: 'the boot server’s proxyDHCP', setBy: `site.boot.proxyDhcp.${setting}` });
    socket.on('error', (err) => ports.log.error({ err }, 'proxyDHCP failed'));
    sockets.push(socket);
    return socket;
  };
  try {
    const heard = await open({ host: noAddress, port: config.port, shared: true }, 'port');
    const { port } = heard.address();
    const own = await open({ host: server, port, shared: true }, 'address');
    own.setBroadcast(true);
    const bootServer = await open({ host: server, port: config.bootServerPort }, 'bootServerPort');
    const answers = createAnswers(ports, desk, server);
    const serve = (socket: Socket, door: ProxyDoor): void => {
      socket.on('message', (bytes, from) => {
        const answer = answers(bytes, door);
        if (answer === null) return;
        // Never where a packet says: who has no address hears what is for all, who has one is whom it came from.
        const to = door === 'dhcp' ? { address: config.broadcast, port: config.clientPort } : from;
        (door === 'dhcp' ? own : bootServer).send(answer, to.port, to.address, (err) => {
          if (err !== null) ports.log.warn({ err, to: to.address }, 'an answer of proxyDHCP could not be sent');
        });
      });
    };
    serve(heard, 'dhcp');
    serve(own, 'dhcp');
    serve(bootServer, 'boot-server');
    return { addresses: { bootDhcp: `${server}:${port}`, bootServer: `${server}:${bootServer.address().port}` }, close };
  } catch (error) {
    await close();
    throw error;
  }
}

type Answers = (bytes: Uint8Array, door: ProxyDoor) => Buffer | null;

function createAnswers(ports: BootPorts, desk: BootDesk, server: string): Answers {
  const { config, log } = ports;
  const given = new Map<string, { sinceMs: number; count: number }>();
  const isTooMany = (macAddress: string): boolean => {
    const nowMs = ports.now();
    const before = given.get(macAddress);
    // Either way: server time may be set back.
    if (before === undefined || Math.abs(nowMs - before.sinceMs) > most.everyMs) {
      // A record that does not read back makes every stranger a machine of ours, and their names cost them nothing.
      if (before === undefined && given.size >= most.machines) given.clear();
      given.set(macAddress, { sinceMs: nowMs, count: 1 });
      return false;
    }
    before.count += 1;
    return before.count > most.answers;
  };
  return (bytes, door) => {
    const request = readRequest(bytes);
    if (request === null || whyNotOurs(request, { door, server }) !== null) return null;
    const { macAddress } = request;
    // Counted for machines that are known alone: strangers take no memory.
    if (!desk.isWanted(macAddress) || isTooMany(macAddress)) return null;
    const scriptUrl = ports.baseUrl() + scriptPath(macAddress);
    const answer = proxyAnswer(request, { loaders: config.loaders, scriptUrl });
    const facts = { macAddress, asked: request.kind, door, vendorClass: request.vendorClass };
    switch (answer.kind) {
      case 'silence':
        log.warn({ ...facts, why: answer.why }, 'a machine that should boot from here was not answered');
        return null;
      case 'no-loader':
        log.error(
          { ...facts, architecture: answer.architecture },
          'a machine that should boot from here has an architecture without a loader (site.boot.loaders)',
        );
        return null;
      case 'file':
        log.info({ ...facts, file: answer.file }, 'a machine was named what to boot');
        return encodeProxyAnswer(request, { server, file: answer.file });
    }
  };
}

/** null for what is no packet of a PXE client: other machines' DHCP is heard here too. */
function readRequest(bytes: Uint8Array): DhcpRequest | null {
  try {
    return parseDhcp(bytes);
  } catch {
    return null;
  }
}
