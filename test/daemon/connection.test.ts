/** The daemon's side of the connection: it alone dials, one stream on each connection, its certificate on every one. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import type { ServerHttp2Session } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { saveIdentity } from '../../daemon/state/identity.ts';
import { dialPinned } from '../../daemon/transport/pinned-connection.ts';
import { hour, minute } from '../../domain/time.ts';
import { desiredStateFromStored, storedDesiredState } from '../../pki/envelope/index.ts';
import { CommandRejectReason } from '../../proto/index.ts';
import { commandOf, joinedNode, signedTrust } from '../harness/deployment.ts';
import { eventually } from '../harness/eventually.ts';
import type { FakeSession } from '../harness/fake-gateway.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { startBcd } from './bcd-process.ts';
import { setStage } from './stage.ts';

const tcpStateListen = '0A';

/** Sockets that a process of this machine listens on, as the kernel counts them. */
function listeningSockets(pid: number): string[] {
  const listening = new Set<string>();
  for (const table of ['tcp', 'tcp6']) {
    for (const line of readFileSync(`/proc/${pid}/net/${table}`, 'utf8').trim().split('\n').slice(1)) {
      const fields = line.trim().split(/\s+/);
      if (fields[3] === tcpStateListen && fields[9] !== undefined) listening.add(fields[9]);
    }
  }
  const links = readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${fd}`)];
    } catch {
      return [];
    }
  });
  return links.filter((link) => listening.has(/^socket:\[(\d+)\]$/.exec(link)?.[1] ?? ''));
}

describe('the daemon on the wire', () => {
  const stage = setStage();
  after(removeScratchFolders);

  it('TRN-002 dials, and listens to nobody: a running bcd has no listening socket', async function () {
    this.timeout(60_000);
    const gateway = await stage.gatewayWith();
    const dataDir = scratchFolder();
    await saveIdentity(dataDir, await joinedNode(stage.deployment, { gatewayUrl: gateway.url }));
    const bcd = startBcd(['run', '--data-dir', dataDir]);
    stage.running.push({ stop: () => bcd.stop() });
    await gateway.nextSession();
    assert.deepEqual(listeningSockets(bcd.child.pid as number), []);
    assert.notEqual(listeningSockets(process.pid).length, 0, 'the gateway of this test is seen to listen');
  });

  it('TRN-003 opens one Session stream on each connection, and nothing else', async () => {
    const gateway = await stage.gatewayWith();
    await stage.daemonAt(gateway.url);
    const seen = new Set<unknown>();
    for (let n = 1; n <= 4; n += 1) {
      const { stream } = await gateway.nextSession();
      seen.add(stream.session);
      assert.equal(stream.id, 1, 'the first stream of its connection');
      assert.deepEqual([seen.size, gateway.connections, gateway.attempts], [n, 1, n]);
      gateway.cut();
    }
  });

  it('TRN-006 dials the address it was given, on port 443 where it names none', async () => {
    const { servingCaPin } = (await joinedNode(stage.deployment, { gatewayUrl: 'https://gw.test' })).identity;
    const gateway = { gatewayUrl: 'https://127.66.0.1', gatewayServerName: null, servingCaPin };
    await assert.rejects(dialPinned({ gateway, client: null, now: Date.now(), timeoutMs: 5_000 }), {
      code: 'UNAVAILABLE',
      message: 'no connection to 127.66.0.1: connect ECONNREFUSED 127.66.0.1:443',
    });
  });

  it('TRN-027 presents its certificate with its authority, on every connection', async () => {
    const gateway = await stage.gatewayWith();
    const member = await stage.daemonAt(gateway.url);
    const { chain } = member.identity().identity;
    for (let n = 0; n < 2; n += 1) {
      const { stream } = await gateway.nextSession();
      const socket = (stream.session as ServerHttp2Session).socket as TLSSocket;
      const presented = socket.getPeerX509Certificate();
      assert.deepEqual(presented?.raw, Buffer.from(chain[0] as Uint8Array));
      assert.deepEqual(presented?.issuerCertificate?.raw, Buffer.from(chain[1] as Uint8Array));
      gateway.cut();
    }
  });

  describe('TRN-004 a gateway relays and cannot forge', () => {
    const positions = [0, 0.25, 0.5, 0.75, 0.99];
    const flipped = (body: Uint8Array, at: number): Buffer => {
      const changed = Buffer.from(body);
      const index = Math.floor(at * changed.length);
      changed.writeUInt8((changed[index] ?? 0) ^ 0x10, index);
      return changed;
    };
    const connected = async () => {
      const gateway = await stage.gatewayWith();
      const member = await stage.daemonAt(gateway.url);
      return { member, session: await gateway.nextSession() };
    };

    it('a command with a changed byte is rejected, and the honest one runs', async () => {
      const { member, session } = await connected();
      const honest = await commandOf(stage.deployment, { id: 'honest' });
      for (const at of positions) {
        session.send({ frame: { case: 'command', value: { ...honest, body: flipped(honest.body, at) } } });
        const { reason } = await session.take('commandReject');
        assert.ok([CommandRejectReason.BAD_SIGNATURE, CommandRejectReason.MALFORMED].includes(reason), CommandRejectReason[reason]);
      }
      assert.equal(member.effects.size, 0);
      session.send({ frame: { case: 'command', value: honest } });
      await session.take('commandResult');
      assert.deepEqual([...member.effects], [['honest', 1]]);
    });

    it('a command that was run is not run again: repeated it is answered from the journal, late it has expired, elsewhere it is refused', async () => {
      const { member, session } = await connected();
      const expiresAtMs = Date.now() + minute;
      const command = await commandOf(stage.deployment, { id: 'once', expiresAtMs });
      for (let n = 0; n < 3; n += 1) {
        session.send({ frame: { case: 'command', value: command } });
        assert.equal((await session.take('commandResult')).commandId, 'once');
      }
      assert.deepEqual([...member.effects], [['once', 1]]);
      const rejected = async (on: FakeSession, value: typeof command): Promise<[string | undefined, string]> => {
        on.send({ frame: { case: 'command', value } });
        const { reason, detail } = await on.take('commandReject');
        return [CommandRejectReason[reason], detail];
      };
      const [stale, why] = await rejected(session, { ...command, epoch: 0n });
      assert.equal(stale, 'STALE_EPOCH');
      assert.match(why, /epoch 0, this daemon has seen 1/);
      // To a daemon that never had it, after its time; and to another node.
      const gateway = await stage.gatewayWith({ now: () => expiresAtMs + hour });
      await stage.daemonAt(gateway.url);
      const [expired, when] = await rejected(await gateway.nextSession(), command);
      assert.equal(expired, 'EXPIRED');
      assert.match(when, /expired at \d{4}-.*, 1 h 0 min ago by server time|expired at \d{4}-.* ago by server time/);
      const elsewhere = await stage.gatewayWith();
      const other = await stage.daemonAt(elsewhere.url, { node: { nodeId: 'node-2' } });
      const [wrongNode, whose] = await rejected(await elsewhere.nextSession(), command);
      assert.equal(wrongNode, 'WRONG_NODE');
      assert.match(whose, /for node "node-1", this is node-2/);
      assert.equal(other.effects.size, 0);
    });

    it('desired state with a changed byte is refused, and the honest one taken', async () => {
      const { member, session } = await connected();
      const { trustDomain, workerA } = stage.deployment;
      const honest = desiredStateFromStored(
        await storedDesiredState(workerA, { nodeId: 'node-1', generation: 3, trustDomain, spec: new Uint8Array() }),
      );
      for (const at of positions) {
        const before = member.status().lastRefusal;
        session.send({ frame: { case: 'desiredState', value: { ...honest, body: flipped(honest.body, at) } } });
        await eventually('refused', () => member.status().lastRefusal !== before);
        assert.equal(member.status().lastRefusal?.reason, 'desired-state-bad-signature');
        assert.equal(member.agent.state.spec.current, undefined);
      }
      session.send({ frame: { case: 'desiredState', value: honest } });
      await eventually('taken', () => member.agent.state.spec.current?.generation === 3n);
    });

    it('a trust bundle with a changed byte is refused, said so to the gateway, and the honest one taken', async () => {
      const { member, session } = await connected();
      const { rootA, rootB } = stage.deployment;
      const honest = await signedTrust(stage.deployment, { version: 2, roots: [rootA, rootB] });
      const offer = (trust: typeof honest): void =>
        session.send({ frame: { case: 'welcome', value: { protocolVersion: 1, epoch: 1n, serverTimeMs: BigInt(Date.now()), trust } } });
      for (const at of positions) {
        offer({ ...honest, body: flipped(honest.body, at) });
        assert.equal((await session.take('trustRefused')).reason, 'bad-signature');
        assert.equal(member.agent.state.held().version, 1);
      }
      offer(honest);
      await eventually('taken', () => member.agent.state.held().version === 2);
    });
  });
});
