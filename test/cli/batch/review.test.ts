/** The review of what a batch holds: what was reviewed, what was expected, what is admitted, and every operation decoded. */
import assert from 'node:assert/strict';
import { type Approver, createApprover } from './approver.ts';
import { bound, reboot } from './hostile-api.ts';

describe('the review of a scope', function () {
  this.timeout(20_000);
  let alice: Approver;
  let { api, desk, approve, tell, refuses } = {} as Approver;
  beforeEach(async () => {
    alice = await createApprover();
    ({ api, desk, approve, tell, refuses } = alice);
  });
  afterEach(() => alice.close());

  it('BATCLI-015 --root holds it to what was reviewed', async () => {
    const reviewed = String(api.batch['root']);
    tell([reboot('node_1'), reboot('node_2'), reboot('node_4')]);
    await refuses(
      approve('--root', reviewed),
      new RegExp(`batch bat_1 has the root ${String(api.batch['root'])}, not ${reviewed} that was reviewed`),
    );
    assert.equal((await approve('--root', String(api.batch['root']))).exitCode, 0);
    assert.match((await approve('--root', 'abc')).err, /64 hex digits/);
  });

  it('BATCLI-016 BATCLI-017 --expect takes exactly the expected set, in any of its forms', async () => {
    const forms = [
      '# rack 7\nnode_1\n\n  node_2\nnode_3\n',
      JSON.stringify(['node_3', 'node_2', 'node_1']),
      JSON.stringify(['node_1', 'node_2', 'node_3'].map((subject) => ({ subject, kind: 'node.reboot' }))),
    ];
    for (const [at, text] of forms.entries()) assert.equal((await approve('--expect', desk.write(`e${at}`, text))).exitCode, 0, text);
    assert.equal(api.approvals.length, 3);
  });

  it('BATCLI-018 and names what is missing and what is not expected', async () => {
    await refuses(
      approve('--expect', desk.write('more', 'node_1\nnode_2\nnode_3\nnode_4')),
      /does not hold exactly what was expected; missing: node_4$/m,
    );
    await refuses(approve('--expect', desk.write('less', 'node_1\nnode_2')), /not expected: node\.reboot on node_3$/m);
    await refuses(
      approve('--expect', desk.write('kind', '[{"subject":"node_1","kind":"service.restart"},"node_2","node_3"]')),
      /missing: service\.restart on node_1; not expected: node\.reboot on node_1/,
    );
    await refuses(approve('--expect', desk.write('none', '\n')), /lists nothing/, 2);
    await refuses(approve('--expect', desk.write('odd', '[{"kind":"node.reboot"}]')), /has no subject at entry 1/, 2);
    await refuses(approve('--expect', desk.path('nowhere')), /cannot be read/, 5);
  });

  it('BATCLI-019 BATCLI-020 marks leaves that admit any payload, names them, and needs --allow-unbound', async () => {
    tell([reboot('node_1'), { subject: 'node_2', kind: 'node.reboot', payloadSha256: '' }]);
    const { err } = await refuses(approve(), /any payload would be admitted for node\.reboot on node_2$/m);
    assert.match(err, /^1 × node\.reboot {2}any payload$/m);
    assert.equal(err.match(/ {2}any payload/g)?.length, 1);
    assert.equal((await approve('--allow-unbound')).exitCode, 0);
  });

  it('BATCLI-021 BATCLI-022 decodes what is done, one line for each payload, with twelve digits of its digest', async () => {
    tell([...Array.from({ length: 100 }, (_, i) => reboot(`node-${i}`)), reboot('node-x', 'firmware')]);
    const { err } = await approve();
    const digest = reboot('any').payloadSha256.slice(0, 12);
    assert.match(err, new RegExp(`^100 × node\\.reboot ${digest} {2}reason: "kernel", delaySeconds: 5$`, 'm'));
    assert.match(err, /^1 × node\.reboot [0-9a-f]{12} {2}reason: "firmware", delaySeconds: 5$/m);
  });

  it('BATCLI-023 a long text loses its middle and no field its name', async () => {
    tell([reboot('node_1', `begin${'x'.repeat(10_000)}end`)]);
    const [line = ''] = /^1 × node\.reboot .*$/m.exec((await approve()).err) ?? [];
    assert.match(line, /reason: "beginx+…\d+ more…x+end", delaySeconds: 5$/);
    assert.ok(line.length < 200);
  });

  it('BATCLI-024 --operations-out has every operation in full with its subjects', async () => {
    const long = 'y'.repeat(5_000);
    tell([reboot('node_1', long), reboot('node_2', long), reboot('node_3')]);
    assert.equal((await approve('--operations-out', desk.path('ops.json'))).exitCode, 0);
    const operations = JSON.parse(desk.read('ops.json')) as { payload: { reason: string }; subjects: string[] }[];
    assert.deepEqual(
      operations
        .map(({ payload, subjects }) => [payload.reason, [...subjects].sort()])
        .sort(([a], [b]) => String(a).length - String(b).length),
      [
        ['kernel', ['node_3']],
        [long, ['node_1', 'node_2']],
      ],
    );
  });

  const kernel = Buffer.from(reboot('x').payload?.value ?? '', 'base64');
  const nodeReboot = 'bettercompute.agent.v1.NodeReboot';

  it('BATCLI-025 BATCLI-026 refuses a payload that it cannot show whole: unknown fields, and bytes that encode otherwise', async () => {
    const odd: readonly [Buffer, RegExp][] = [
      [Buffer.concat([kernel, Buffer.from([0xfa, 0x3e, 0x01, 0x01])]), /holds more than this program can show/],
      [Buffer.concat([kernel, Buffer.from([0x10, 0x05])]), /holds more than this program can show/],
      [Buffer.from([0x10, 0x85, 0x00]), /holds more than this program can show/],
      [Buffer.from([0x0a, 0xff]), /does not decode/],
    ];
    for (const [value, message] of odd) {
      tell([bound('node_1', { kind: 'node.reboot', type: nodeReboot, value })]);
      await refuses(approve('--allow-opaque', '--allow-unbound'), message);
      assert.match((await approve('--json')).out, /"reason": "payload-unknown-fields"/);
    }
  });

  it('BATCLI-027 BATCLI-028 a kind it does not know is opaque, whatever the server labels it, and needs --allow-opaque', async () => {
    tell([bound('node_1', { kind: 'plugin.dance', type: nodeReboot, value: kernel })]);
    const { err } = await refuses(approve(), /plugin\.dance [0-9a-f]{12} on node_1 cannot be shown: this program does not know the kind/);
    assert.match(err, /^1 × plugin\.dance [0-9a-f]{12} {2}opaque/m);
    assert.doesNotMatch(err, /delaySeconds/);
    assert.equal((await approve('--allow-opaque')).exitCode, 0);
  });

  it('BATCLI-027 a digest without its payload is opaque as well', async () => {
    tell([{ ...reboot('node_1'), payload: undefined as never }]);
    await refuses(approve(), /cannot be shown: the batch holds its digest alone/);
  });

  it('QUO-022 a known kind under the label of another message is refused', async () => {
    tell([bound('node_1', { kind: 'node.reboot', type: 'bettercompute.agent.v1.InventoryRefresh', value: kernel })]);
    await refuses(
      approve('--allow-opaque'),
      /is labelled type\.googleapis\.com\/bettercompute\.agent\.v1\.InventoryRefresh, not bettercompute\.agent\.v1\.NodeReboot/,
      9,
    );
  });

  it('BATCLI-028 a payload beside an unbound leaf is refused: it would be shown and not signed', async () => {
    tell([
      { subject: 'node_1', kind: 'node.reboot', payloadSha256: '', payload: reboot('x').payload as { typeUrl: string; value: string } },
    ]);
    await refuses(approve('--allow-unbound'), /admits any payload and shows one/, 9);
  });
});
