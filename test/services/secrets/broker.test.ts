/** The broker of secrets over a real database: every check, its word, and what a gateway or whoever writes the database gains by meddling. */
import assert from 'node:assert/strict';
import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { AnySchema, anyPack } from '@bufbuild/protobuf/wkt';
import { commandKinds } from '../../../domain/commands/kinds.ts';
import { splitCommandId } from '../../../domain/secrets/binding.ts';
import { day, hour, minute } from '../../../domain/time.ts';
import { createBundle, type PkiBundle } from '../../../pki/bundle/index.ts';
import { createWorkerKey, signCommand } from '../../../pki/envelope/index.ts';
import { openSecretResponse } from '../../../pki/secrets/index.ts';
import { type CertificateAuthority, createSerial } from '../../../pki/x509/index.ts';
import { CommandBodySchema, SecretResponseSchema, SignatureSchema, site } from '../../../proto/index.ts';
import { type CommandRequest, enqueueCommands } from '../../../services/command-queue.ts';
import { createGatewayServices } from '../../../services/gateway-services.ts';
import { revokeNode } from '../../../services/revocation.ts';
import { isBound } from '../../../services/secrets/binding.ts';
import { createSecretResolver } from '../../../services/secrets/providers.ts';
import { setSecret } from '../../../services/secrets/store.ts';
import { addBootEntry } from '../metal-rows.ts';
import {
  addNode,
  type EnrolledNode,
  enrol,
  keyring,
  newKey,
  type recordingLog,
  refused,
  sha256,
  testBundle,
  trustDomain,
} from '../support.ts';
import { type Ask, password, secret, setBrokerStage } from './broker-stage.ts';

describe('the broker of secrets', () => {
  const { used, stage, ask, encode, send, wordOf } = setBrokerStage();
  let agent: EnrolledNode;
  let log: ReturnType<typeof recordingLog>;
  let count = 0;
  beforeEach(() => ({ agent, log, count } = stage));

  const power = (changes: MessageInitShape<typeof site.BmcPowerSchema> = {}): Uint8Array =>
    toBinary(
      AnySchema,
      anyPack(site.BmcPowerSchema, create(site.BmcPowerSchema, { nodeId: 'm-1', credentialRef: 'secret://bmc/m-1', ...changes })),
    );
  let ids = 0;
  /** A command of the site agent, as the queue signs and appends it. @returns its id */
  async function enqueue(changes: Partial<CommandRequest> = {}): Promise<string> {
    ids += 1;
    const id = `machine/m-1/provision/0a1b2c3d4e5f/boot.${ids}`;
    const command = {
      id,
      nodeId: agent.id,
      kind: 'bmc.power',
      payload: power(),
      deadlineMs: Date.now() + hour,
      requestedBy: 'olga',
      ...changes,
    };
    await enqueueCommands({
      db: used.db,
      worker: await keyring(used.db, { now: Date.now }),
      trustDomain,
      now: Date.now(),
      commands: [command],
    });
    return command.id;
  }

  it('SEC-001 SEC-006 SEC-008 SEC-010 a machine gets what its open command names, sealed; neither log nor stored command holds it', async () => {
    const id = await enqueue();
    assert.equal(await wordOf({ id }), password);
    const pending = await ask({ id });
    const { jwe } = await send(encode(pending.request));
    assert.equal(Buffer.from(jwe.split('.')[3] ?? '', 'base64url').includes('calvin'), false);
    assert.equal(JSON.stringify(log.lines).includes('calvin'), false);
    const stored = await used.db.query<{ body: Uint8Array }>({ text: 'select body from node_commands' });
    assert.ok(stored.length > 0 && stored.every(({ body }) => !Buffer.from(body).includes('calvin')), 'SEC-001: references, never values');
    const [row] = await used.db.query<{ sealed: Uint8Array }>({ text: `select sealed from secrets where path = 'bmc/m-1'` });
    assert.equal(Buffer.from(row?.sealed ?? []).includes('calvin'), false);
  });

  it('SEC-006 SEC-009 not-bound: a command of another node, one that ended, one that names another secret, none at all', async () => {
    const other = await enrol(used.db, `site-other-${count}`, { now: Date.now(), role: 'site' });
    const id = await enqueue();
    assert.equal(await wordOf({ id, node: other }), 'not-bound', 'of another node');
    assert.equal(await wordOf({ id, ref: 'secret://bmc/m-2' }), 'not-bound', 'it names another one');
    assert.equal(await wordOf({ id: 'machine/m-1/provision/0a1b2c3d4e5f/boot.none' }), 'not-bound');
    assert.equal(await wordOf({ id, allocationId: 'i-1' }), 'not-bound', 'two bindings at once mean nothing');
    assert.equal(await wordOf({ workflowId: '', stepId: '', allocationId: 'i-1' }), 'not-bound', 'no signed word says what runs where');
    await used.db.query({ text: 'update node_commands set state = 1 where id = $1' }, [id]);
    assert.equal(await wordOf({ id }), password, 'while it runs');
    await used.db.query({ text: 'update node_commands set state = 2, finished_at = now() where id = $1' }, [id]);
    assert.equal(await wordOf({ id }), 'not-bound', 'it is done');
    const cancelled = await enqueue();
    await used.db.query({ text: 'update node_commands set state = 5, finished_at = now() where id = $1' }, [cancelled]);
    assert.equal(await wordOf({ id: cancelled }), 'not-bound');
  });

  it('SEC-006 a reference counts in a field that is meant for one, at any depth, and nowhere else', async () => {
    const named = await enqueue({ payload: power({ credentialRef: '', systemId: 'secret://bmc/m-1', runId: 'secret://bmc/m-1' }) });
    assert.equal(await wordOf({ id: named }), 'not-bound');
    const proxied = create(site.SiteHttpProxySchema, { method: 'GET', headers: [{ name: 'x', valueRef: 'secret://bmc/m-1' }] });
    const id = await enqueue({ kind: 'site.httpProxy', payload: toBinary(AnySchema, anyPack(site.SiteHttpProxySchema, proxied)) });
    assert.equal(await wordOf({ id }), password);
    const rotation = create(site.BmcRotateSchema, { credentialRef: 'secret://bmc/m-9', newCredentialRef: 'secret://bmc/m-1' });
    const rotate = await enqueue({ kind: 'bmc.rotate', payload: toBinary(AnySchema, anyPack(site.BmcRotateSchema, rotation)) });
    assert.equal(await wordOf({ id: rotate }), password);
  });

  it('SEC-009 not-found: no such secret, and a scheme that nobody here knows', async () => {
    const refs = ['secret://bmc/none', 'gopher://bmc/m-1', 'secret://../bmc/m-1', 'env://HOME', 'vault://kv/a#b'];
    for (const ref of refs) {
      const id = await enqueue({ payload: power({ credentialRef: ref }) });
      assert.equal(await wordOf({ id, ref }), 'not-found', ref);
    }
    const unbound = await wordOf({ id: 'machine/m-1/x/none.1', ref: 'secret://bmc/none' });
    assert.equal(unbound, 'not-bound', 'whether one exists is told to nobody who is not bound to it');
  });

  it('SEC-005 SEC-009 access-denied: a question that the node did not sign exactly so', async () => {
    const id = await enqueue();
    assert.equal(await wordOf({ id, node: { ...agent, key: newKey() } }), 'access-denied');
    const { request } = await ask({ id });
    assert.equal((await send(encode({ ...request, ref: 'secret://bmc/m-2' }))).error, 'access-denied');
  });

  it('SEC-009 access-denied: a certificate that is over, of another CA, not issued here, or revoked', async () => {
    const id = await enqueue();
    const over = await enrol(used.db, `site-over-${count}`, { now: Date.now() - day - minute, role: 'site' });
    assert.equal(await wordOf({ id, node: over }), 'access-denied');
    const { internalCa } = await testBundle();
    assert.equal(await wordOf({ id }, { anchors: [internalCa.certificate.der] }), 'access-denied');
    assert.equal(await wordOf({ id }, { chain: [] }), 'access-denied');
    assert.equal(await wordOf({ id }, { trustDomain: 'other.example' }), 'access-denied');
    await used.db.query({ text: 'update node_certs set cert_der = $2 where node_id = $1' }, [agent.id, Buffer.from('other')]);
    assert.equal(await wordOf({ id }), 'access-denied');
    await used.db.query({ text: 'update node_certs set cert_der = $2 where node_id = $1' }, [agent.id, agent.certificate.der]);
    assert.equal(await wordOf({ id }), password);
    await revokeNode({ db: used.db, nodeId: agent.id, reason: 'stolen', actor: 'olga', now: Date.now() });
    assert.equal(await wordOf({ id }), 'access-denied');
  });

  it('SEC-011 ID-032 access-denied always: a certificate that a tenant controls, before anything else is looked at', async () => {
    const tenant = await enrol(used.db, `tenant-${count}`, { now: Date.now(), role: 'node-tenant' });
    const id = await enqueue();
    await used.db.query({ text: 'update node_commands set node_id = $2 where id = $1' }, [id, tenant.id]);
    assert.equal(await wordOf({ id, node: tenant }), 'access-denied');
    assert.equal((await send(Buffer.from(encode((await ask({ id, node: tenant })).request)), { node: tenant })).error, 'access-denied');
    assert.match(log.lines.map(({ fields }) => String((fields as { err?: Error }).err?.message)).join('\n'), /is controlled by a tenant/);
  });

  it('SEC-009 unavailable: a fault of ours is no verdict on the machine, and is in the log', async () => {
    const id = await enqueue();
    assert.equal(await wordOf({ id }, { resolve: () => Promise.reject(new Error('the store is away')) }), 'unavailable');
    assert.equal(log.lines.at(-1)?.level, 'error');
    await used.db.query({ text: 'update secrets set sealed = $1' }, [Buffer.alloc(100)]);
    assert.equal(await wordOf({ id }), 'unavailable', 'a row that was changed opens for nobody');
    await used.db.transaction((tx) =>
      setSecret(tx, { path: 'bmc/m-1', value: Buffer.from(password), secret, actor: 'olga', now: Date.now() }),
    );
  });

  it('refuses bytes that are no request, for then there is nothing to answer to', async () => {
    await assert.rejects(send(Uint8Array.of(255)), refused('MALFORMED', /does not decode/, 'request'));
    await assert.rejects(send(new Uint8Array(16 * 1_024 + 1)), refused('FRAME_TOO_LARGE', /exceeds the bound/, 'request'));
  });

  describe('whoever writes the database gets nothing delivered', () => {
    /** A row of his own in the agent's log: everything but a signature that counts. */
    async function forge(
      id: string,
      changes: { from?: string; rootOf?: 'ours' | 'his'; nodeId?: string; generation?: bigint } = {},
    ): Promise<void> {
      const { rootOf = 'his', nodeId = agent.id, generation = 1n } = changes;
      const keys = rootOf === 'his' ? await createBundle({ trustDomain, now: Date.now() - day }) : await testBundle();
      const body = toBinary(
        CommandBodySchema,
        create(CommandBodySchema, {
          commandId: id,
          nodeId,
          kind: 'bmc.power',
          payload: anyPack(site.BmcPowerSchema, create(site.BmcPowerSchema, { credentialRef: 'secret://bmc/m-1' })),
          issuedAtMs: BigInt(Date.now()),
          expiresAtMs: BigInt(Date.now() + hour),
          trustDomain,
          generation,
        }),
      );
      const worker = await createWorkerKey({ root: commandRootOf(keys), now: Date.now(), lifetimeMs: hour, serial: createSerial() });
      const signature = toBinary(SignatureSchema, await signCommand(worker, body));
      await used.db.query(
        {
          text: `insert into node_commands (node_id, seq, id, kind, lane, body, body_sha256, signature, signer_root, signer_not_after, deadline)
                 values ($1, (select coalesce(max(seq), 0) + 1 from node_commands where node_id = $1), $2, 'bmc.power', 'bmc', $3, $4, $5, '', now(), now() + interval '1 hour')`,
        },
        [agent.id, id, body, sha256(body), signature],
      );
    }
    const commandRootOf = ({ commandSigning }: PkiBundle): CertificateAuthority => {
      assert.ok(commandSigning);
      return { certificate: commandSigning.certificate.der, signer: commandSigning.signer() };
    };

    it('SEC-006 SIGN-010 a command under a root of his own, whatever the rows say is published', async () => {
      await forge('machine/m-1/x/boot.forged');
      assert.equal(await wordOf({ id: 'machine/m-1/x/boot.forged' }), 'not-bound');
      await forge('machine/m-1/x/boot.control', { rootOf: 'ours' });
      assert.equal(await wordOf({ id: 'machine/m-1/x/boot.control' }), password, 'the same row under ours is a command');
      // He publishes his root: the JoinService key did not sign it, so nothing that is published can be believed.
      const [kept] = await used.db.query<{ body: Uint8Array }>({ text: 'select body from trust_bundle_state' });
      await used.db.query({ text: 'update trust_bundle_state set body = $1' }, [
        Buffer.concat([kept?.body ?? new Uint8Array(), Buffer.from([0])]),
      ]);
      assert.equal(await wordOf({ id: 'machine/m-1/x/boot.forged' }), 'unavailable');
      await used.db.query({ text: 'update trust_bundle_state set body = $1' }, [kept?.body]);
    });

    it('SEC-006 a command of another node or of an earlier generation, put into this one’s log', async () => {
      await forge('machine/m-1/x/boot.moved', { rootOf: 'ours', nodeId: 'another-agent' });
      assert.equal(await wordOf({ id: 'machine/m-1/x/boot.moved' }), 'not-bound');
      await forge('machine/m-1/x/boot.older', { rootOf: 'ours', generation: 7n });
      assert.equal(await wordOf({ id: 'machine/m-1/x/boot.older' }), 'not-bound');
    });

    it('SEC-006 a body that was changed under its signature, and one under another id', async () => {
      const id = await enqueue();
      await used.db.query({ text: 'update node_commands set id = $2 where id = $1' }, [id, `${id}-renamed`]);
      assert.equal(await wordOf({ id: `${id}-renamed` }), 'not-bound');
      await used.db.query({ text: `update node_commands set id = $2, body = body || '\\x0801'::bytea where id = $1` }, [
        `${id}-renamed`,
        id,
      ]);
      assert.equal(await wordOf({ id }), 'not-bound');
    });

    it('SEC-006 a command that was over, opened again: only as long as it might have run', async () => {
      const deadlineMs = Math.floor(Date.now() / 1000) * 1000 + minute;
      const id = await enqueue({ deadlineMs });
      const asking = { nodeId: agent.id, generation: 1, ref: 'secret://bmc/m-1', ...splitCommandId(id), allocationId: '' };
      const { joinSigning } = await testBundle();
      const at = (now: number) => isBound(asking, { db: used.db, trustDomain, joinKey: joinSigning.spki, now });
      const end = deadlineMs + commandKinds['bmc.power'].timeoutMs;
      assert.deepEqual([await at(end - 1), await at(end)], [true, false]);
    });
  });

  describe('boot entries', () => {
    async function prepare(changes: { ref?: string; expiresAtMs?: number } = {}) {
      const machine = `metal-${count}`;
      await addNode(used.db, machine);
      const rows = await addBootEntry(used.db, { nodeId: machine, now: Date.now() });
      const workflowId = `machine/${machine}/provision/${rows.runId}`;
      const ref = `secret://run/${rows.runId}/boot/${rows.entryId}`;
      const { expiresAtMs = Date.now() + hour } = changes;
      const payload = create(site.BootPrepareRamdiskSchema, {
        nodeId: machine,
        runId: rows.runId,
        entryId: rows.entryId,
        discoveryTokenRef: changes.ref ?? ref,
        expiresAtMs: BigInt(expiresAtMs),
      });
      const id = `${workflowId}/prepare-boot.1`;
      await enqueue({ id, kind: 'boot.prepareRamdisk', payload: toBinary(AnySchema, anyPack(site.BootPrepareRamdiskSchema, payload)) });
      const path = ref.slice('secret://'.length);
      await used.db.transaction((tx) => setSecret(tx, { path, value: rows.token, secret, actor: 'olga', now: Date.now() }));
      return { ...rows, id, ref, workflowId };
    }
    const tokenOf = async (asked: Ask): Promise<string> => wordOf({ ...asked, stepId: '' });

    it('SEC-006 SEC-023 a site agent gets the token of an entry it serves, by its workflow alone, also when the command is done', async () => {
      const { ref, workflowId, id, token } = await prepare();
      assert.equal(await tokenOf({ ref, workflowId }), Buffer.from(token).toString());
      await used.db.query({ text: 'update node_commands set state = 2, finished_at = now() where id = $1' }, [id]);
      assert.equal(await tokenOf({ ref, workflowId }), Buffer.from(token).toString());
    });

    it('SEC-006 SEC-023 not-bound: another run’s token, another agent, an entry that was closed or is over, a command that was taken back', async () => {
      const { ref, workflowId, entryId, id } = await prepare();
      const other = await enrol(used.db, `site-elsewhere-${count}`, { now: Date.now(), role: 'site' });
      assert.equal(await tokenOf({ ref, workflowId, node: other }), 'not-bound');
      assert.equal(await tokenOf({ ref: 'secret://bmc/m-1', workflowId }), 'not-bound');
      assert.equal(await tokenOf({ ref, workflowId: workflowId.slice(0, -1) }), 'not-bound', 'a prefix is no workflow');
      const set = (what: string) => used.db.query({ text: `update boot_entries set ${what} where id = $1` }, [entryId]);
      await set('closed_at = now()');
      assert.equal(await tokenOf({ ref, workflowId }), 'not-bound');
      await set(`closed_at = null, expires_at = now() - interval '1 second'`);
      assert.equal(await tokenOf({ ref, workflowId }), 'not-bound');
      await set(`expires_at = now() + interval '1 hour'`);
      await used.db.query({ text: 'update node_commands set state = 5, finished_at = now() where id = $1' }, [id]);
      assert.equal(await tokenOf({ ref, workflowId }), 'not-bound');
    });

    it('SEC-006 a row that gives an entry a longer life than was signed gives it none', async () => {
      const { ref, workflowId } = await prepare({ expiresAtMs: Date.now() - 1 });
      assert.equal(await tokenOf({ ref, workflowId }), 'not-bound');
    });
  });

  it('JOIN-021 A-PKI-50 is behind the one port of the gateway', async () => {
    const keys = await testBundle();
    const resolve = createSecretResolver(used.db, { secret, vault: null, environment: { allowed: [], values: {} } });
    const services = createGatewayServices({ db: used.db, bundle: () => keys, secrets: resolve, log, now: Date.now });
    const pending = await ask({ id: await enqueue() });
    const bytes = await services.secret?.(encode(pending.request), { chain: [agent.certificate.der, keys.nodeCa.certificate.der] });
    assert.ok(bytes !== undefined);
    const opened = openSecretResponse(fromBinary(SecretResponseSchema, bytes), { pending, now: Date.now() });
    assert.equal(Buffer.from(opened).toString(), password);
    const bare = createGatewayServices({ db: used.db, bundle: () => keys, log, now: Date.now });
    assert.equal(bare.secret, undefined);
  });
});
