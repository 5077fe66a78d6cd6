/** What the metadata service is made of: turns, session tokens, addresses, the runtime fakehw, and its settings. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { parseDaemonConfig } from '../../daemon/config.ts';
import { canonicalAddress, parseListenAddress } from '../../daemon/imds/address.ts';
import { openFakeHardware } from '../../daemon/imds/fakehw.ts';
import { metadataSettings } from '../../daemon/imds/index.ts';
import { createInstanceTurns, mostWaiting } from '../../daemon/imds/instance-turns.ts';
import { createSessionTokens, longestSessionSeconds } from '../../daemon/imds/session-tokens.ts';
import { hour, minute, second } from '../../domain/time.ts';
import { workloadLimits } from '../../domain/workload/limits.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { refused } from '../services/support.ts';

const [guest, neighbour] = ['127.0.0.11', '127.0.0.12'];

describe('parts of the metadata service', () => {
  after(removeScratchFolders);

  describe('turns of instances', () => {
    const gate = () => {
      let open: () => void = () => undefined;
      const opened = new Promise<void>((resolve) => void (open = resolve));
      return { open, opened };
    };

    it('one under way for each instance, four in all, and whoever had one stands behind the others', async () => {
      const turns = createInstanceTurns({ steadyMs: () => 0 });
      const begun: string[] = [];
      const gates = new Map<string, ReturnType<typeof gate>>();
      const run = (name: string): Promise<void> => {
        gates.set(name, gate());
        return turns.run(name.charAt(0), async () => {
          begun.push(name);
          await gates.get(name)?.opened;
        });
      };
      const all = ['a1', 'a2', 'a3', 'b1', 'c1', 'd1', 'e1', 'e2'].map(run);
      await new Promise(setImmediate);
      assert.deepEqual(begun, ['a1', 'b1', 'c1', 'd1'], 'the second of a waits, though it came first');
      gates.get('a1')?.open();
      await new Promise(setImmediate);
      assert.equal(begun.length, workloadLimits.underWayPerSession + 1);
      for (const { open } of gates.values()) open();
      await Promise.all(all);
      assert.deepEqual([...begun].sort(), ['a1', 'a2', 'a3', 'b1', 'c1', 'd1', 'e1', 'e2']);
    });

    it('refuses what would wait too long or too often; other instances are not held to it', async () => {
      let now = 0;
      const turns = createInstanceTurns({ steadyMs: () => now });
      const { open, opened } = gate();
      const held = Array.from({ length: mostWaiting + 1 }, () => turns.run('a', () => opened));
      await assert.rejects(
        turns.run('a', () => opened),
        refused('RATE_LIMITED', /8 questions of instance a wait already/, 'too-many-waiting'),
      );
      await turns.run('b', async () => undefined);
      open();
      await Promise.all(held);
      for (let asked = mostWaiting + 1; asked < workloadLimits.tokensPerMinute; asked++) await turns.run('a', async () => undefined);
      await assert.rejects(
        turns.run('a', async () => undefined),
        refused('RATE_LIMITED', /asked 30 times within a minute/, 'too-often'),
      );
      await turns.run('b', async () => undefined);
      now = minute;
      await turns.run('a', async () => undefined);
    });

    it('goes on after a question that failed', async () => {
      const turns = createInstanceTurns({ steadyMs: () => 0 });
      await assert.rejects(
        turns.run('a', async () => Promise.reject(new Error('no'))),
        /no/,
      );
      assert.equal(await turns.run('a', async () => 'yes'), 'yes');
    });
  });

  it('a session token counts for its instance, its address and its time (property)', () => {
    const id = fc.stringMatching(/^[a-z0-9][a-z0-9.-]{0,20}$/);
    fc.assert(
      fc.property(
        id,
        id,
        fc.ipV4(),
        fc.ipV4(),
        fc.integer({ min: 1, max: longestSessionSeconds }),
        fc.integer({ min: 0, max: 12 * hour }),
        (...args) => {
          const [instanceId, otherId, address, otherAddress, ttl, later] = args;
          let now = 5;
          const tokens = createSessionTokens({ key: Buffer.alloc(32, 3), steadyMs: () => now });
          const token = tokens.issue({ instanceId, address }, ttl);
          now += later;
          assert.equal(tokens.isValid(token, { instanceId, address }), later < ttl * second);
          if (otherId !== instanceId) assert.equal(tokens.isValid(token, { instanceId: otherId, address }), false);
          if (otherAddress !== address) assert.equal(tokens.isValid(token, { instanceId, address: otherAddress }), false);
          const restarted = createSessionTokens({ key: Buffer.alloc(32, 4), steadyMs: () => now });
          assert.equal(restarted.isValid(token, { instanceId, address }), false);
        },
      ),
    );
  });

  it('addresses have one spelling, and one with a zone or a name is none', () => {
    const cases: [string, string | null][] = [
      ['10.0.0.1', '10.0.0.1'],
      ['::ffff:10.0.0.1', '10.0.0.1'],
      ['2001:DB8:0:0::1', '2001:db8::1'],
      ['fe80::1%eth0', null],
      ['010.0.0.1', null],
      ['example.com', null],
      ['', null],
    ];
    for (const [text, canonical] of cases) assert.equal(canonicalAddress(text), canonical, text);
    assert.deepEqual(parseListenAddress('169.254.169.254:80'), { host: '169.254.169.254', port: 80 });
    assert.deepEqual(parseListenAddress('[fd00:ec2::254]:80'), { host: 'fd00:ec2::254', port: 80 });
    for (const bad of ['80', ':80', '0.0.0.0:80', '[::]:80', '::1:80', '[10.0.0.1]:80', 'metadata:80', '10.0.0.1:65536', '10.0.0.1'])
      assert.equal(parseListenAddress(bad), null, bad);
  });

  describe('WID-028 the runtime fakehw', () => {
    const written = async (value: unknown): Promise<string> => {
      const path = join(scratchFolder(), 'instances.json');
      await writeFile(path, typeof value === 'string' ? value : JSON.stringify(value));
      return path;
    };

    it('serves the instances that a file declares running, as the file is now', async () => {
      const path = await written({
        instances: [
          { instanceId: 'i-1', address: guest },
          { instanceId: 'i-2', address: neighbour, state: 'stopped' },
        ],
      });
      const opened = await openFakeHardware(path);
      assert.deepEqual(
        [await opened.findByAddress(guest), await opened.findByAddress(neighbour)],
        [{ instanceId: 'i-1', reservationId: null }, null],
      );
      await writeFile(path, JSON.stringify({ instances: [{ instanceId: 'i-2', address: neighbour }] }));
      assert.deepEqual(
        [await opened.findByAddress(guest), await opened.findByAddress(neighbour)],
        [null, { instanceId: 'i-2', reservationId: null }],
      );
      await writeFile(path, '{');
      await assert.rejects(opened.findByAddress(guest), refused('INVALID_CONFIG', /is not JSON/, 'instances-file'));
    });

    it('refuses a file that says two things at once, with every problem', async () => {
      await assert.rejects(openFakeHardware('/nowhere/instances.json'), refused('NOT_FOUND', /no file of instances/, 'no-instances-file'));
      const bad: [unknown, RegExp][] = [
        [
          { instances: [{ instanceId: 'a b', address: 'x' }] },
          /instanceId: is no instance id; instances\.0\.address: must be an IP address/,
        ],
        [
          {
            instances: [
              { instanceId: 'a', address: guest },
              { instanceId: 'b', address: `::ffff:${guest}` },
            ],
          },
          /two running instances have address 127\.0\.0\.11/,
        ],
        [
          {
            instances: [
              { instanceId: 'a', address: guest },
              { instanceId: 'a', address: neighbour },
            ],
          },
          /two running instances have instanceId a/,
        ],
        [{ instances: [], more: 1 }, /Unrecognized key/],
      ];
      for (const [value, message] of bad)
        await assert.rejects(openFakeHardware(await written(value)), refused('INVALID_CONFIG', message, 'instances-file'));
    });
  });

  it('WID-040 is set by imds.listen, whole or not at all', () => {
    const config = parseDaemonConfig('bcd.json', '{"imds":{"listen":"169.254.169.254:80"}}');
    const set = { listen: config.imds?.listen, fakehwInstances: 'instances.json', role: 'node' };
    assert.deepEqual(metadataSettings(set), { listen: { host: '169.254.169.254', port: 80 }, fakehwInstances: 'instances.json' });
    assert.equal(metadataSettings({ listen: undefined, fakehwInstances: undefined, role: 'site' }), null);
    assert.throws(
      () => parseDaemonConfig('bcd.json', '{"imds":{"listen":"0.0.0.0:80"}}'),
      refused('INVALID_CONFIG', /imds\.listen: must be an address of this machine/, 'config'),
    );
    const cases: [Partial<typeof set>, RegExp][] = [
      [{ listen: undefined }, /nothing serves them: name an address with --imds-listen/],
      [{ fakehwInstances: undefined as never }, /has no runtime of instances to serve: declare some with --fakehw-instances/],
      [{ role: 'site' }, /joined as site: only a node runs instances/],
    ];
    for (const [change, message] of cases)
      assert.throws(() => metadataSettings({ ...set, ...change }), refused('INVALID_CONFIG', message, 'imds'));
  });
});
