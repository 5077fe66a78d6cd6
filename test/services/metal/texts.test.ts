import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import fc from 'fast-check';
import { hour, minute } from '../../../domain/time.ts';
import { assertProfile, parseProfileText, readInventory, readProfileText } from '../../../services/metal/index.ts';
import type { TextProblem } from '../../../services/metal/types.ts';
import { refused } from '../support.ts';

const lines = (problems: readonly TextProblem[]): string[] => problems.map(({ line, field, message }) => `${line} ${field}: ${message}`);
const sha = 'ab'.repeat(32);
const good = `name: debian-13
boot:
  kernel: { name: vmlinuz, sha256: ${sha} }
  initramfs: { name: initramfs.gz, sha256: ${sha} }
  bootTime: 8m
deploy:
  image:
    url: https://images.example/debian-13.raw.zst
    sha256: ${sha}
    compression: zstd
  disk: { minBytes: 400GiB, transport: nvme }
  pick: smallest
  userData: secret://userdata/web
`;

describe('profiles', () => {
  const folder = new URL('../../../profiles/', import.meta.url);
  for (const file of readdirSync(folder)) {
    it(`profiles/${file} is good`, () => {
      assert.deepEqual(lines(readProfileText(readFileSync(new URL(file, folder), 'utf8')).problems), []);
    });
  }

  it('are read with their durations, sizes and what they do not say', () => {
    const profile = parseProfileText(good, 'debian.yaml');
    assert.deepEqual(
      [
        profile.boot.bootTimeMs,
        profile.boot.discoveryWindowMs,
        profile.boot.graceful,
        profile.deploy.disk.minBytes,
        profile.start.by,
        profile.wipe.samples,
      ],
      [8 * minute, hour, true, 400 * 2 ** 30, 'kexec', 64],
    );
    assert.equal(profile.deploy.userDataRef, 'secret://userdata/web');
    assert.deepEqual(assertProfile(JSON.parse(JSON.stringify(profile)), 'provision'), profile, 'and come back from JSON');
  });

  const withSteps = (steps: string): string => `${good}steps:\n${steps}`;

  it('BAT-036 have steps of their own, with times, and what a step does not say', () => {
    const profile = parseProfileText(
      withSteps(`  - name: nic-firmware
    after: diagnose
    sends: [driver.invoke]
    within: 20m
    do: { driver.invoke: { plugin: nic, manifestSha256: ${sha}, method: flash, input: '{"slot":1}' } }
  - name: up
    after: provisioned-join
    do: { site.httpProxy: { method: GET, url: 'https://{machine}.hel-1.example/healthz' } }
`),
      'debian.yaml',
    );
    assert.deepEqual(profile.steps, [
      {
        name: 'nic-firmware',
        after: 'diagnose',
        sends: ['driver.invoke'],
        withinMs: 20 * minute,
        do: { 'driver.invoke': { plugin: 'nic', manifestSha256: sha, method: 'flash', input: '{"slot":1}', harmless: false } },
      },
      {
        name: 'up',
        after: 'provisioned-join',
        do: {
          'site.httpProxy': {
            method: 'GET',
            url: 'https://{machine}.hel-1.example/healthz',
            headers: [],
            body: '',
            pinSha256: '',
            expect: [],
          },
        },
      },
    ]);
    assert.deepEqual(assertProfile(JSON.parse(JSON.stringify(profile)), 'provision'), profile, 'and come back from JSON');
  });

  it('BAT-036 tell of all their steps at once what is wrong with them', () => {
    const problems = lines(
      readProfileText(
        withSteps(`  - name: wipe
    after: diagnose
    sends: [site.httpProxy]
    do: { driver.invoke: { plugin: ../nic, manifestSha256: ${sha}, method: flash } }
  - name: up
    after: start
    do: { service.restart: { unit: a.service } }
  - name: both
    after: provisioned-join
    do: { node.reboot: { reason: x }, service.restart: { unit: a.service } }
`),
      ).problems,
    );
    const expected = [
      /^15 steps\[0\]\.name: wipe is a step already/,
      /^17 steps\[0\]\.sends: declares site\.httpProxy, and the step sends driver\.invoke/,
      /^18 steps\[0\]\.do\.driver\.invoke\.plugin: must be the name of a plugin/,
      /^20 steps\[1\]\.after: nobody who runs service\.restart is there behind start/,
      /^24 steps\[2\]\.do: must name one thing to do/,
    ];
    assert.equal(problems.length, expected.length, problems.join('\n'));
    for (const [at, form] of expected.entries()) assert.match(problems[at] ?? '', form);
    const form = lines(
      readProfileText(
        withSteps(
          "  - { name: x, after: diagnose, do: { site.httpProxy: { method: TRACE, url: 'ftp://{machine}/', headers: [{ name: 'a b' }] } } }\n",
        ),
      ).problems,
    );
    assert.deepEqual(
      form.map((one) => one.split(': ')[0]?.split(' ')[1]),
      ['steps[0].do.site.httpProxy.method', 'steps[0].do.site.httpProxy.url', 'steps[0].do.site.httpProxy.headers[0].name'],
    );
  });

  it('tell every problem at once, with its line and field', () => {
    const bad = `name: Debian 13
boot:
  kernel: { name: ../vmlinuz, sha256: ABC }
  initramfs: { name: initramfs.gz, sha256: ${sha} }
  bootTime: 8 minutes
deploy:
  image:
    url: ftp://images.example/x
    sha256: ${sha}
  disk: { minBytes: lots }
  userData: hunter2
wipe:
  samples: 0
colour: red
`;
    const problems = lines(readProfileText(bad).problems);
    const expected = [
      /^1 name: is no name/,
      /^3 boot\.kernel\.name: is no file name/,
      /^3 boot\.kernel\.sha256: is no SHA-256/,
      /^5 boot\.bootTime: is no duration: write 90s, 20m or 2h$/,
      /^8 deploy\.image\.url: is no http or https address/,
      /^10 deploy\.disk\.minBytes: "lots" is no size/,
      /^11 deploy\.userData: is no reference to a secret/,
      /^13 wipe\.samples: is less than 1/,
    ];
    for (const form of expected)
      assert.ok(
        problems.some((text) => form.test(text)),
        `${form} in ${problems.join('\n')}`,
      );
    assert.ok(
      problems.some((text) => /"colour"/.test(text)),
      problems.join('\n'),
    );
    assert.ok(!problems.join().includes('hunter2'), 'a secret that was written by mistake is not repeated');
    assert.throws(
      () => parseProfileText(bad, 'bad.yaml'),
      refused('INVALID_INPUT', /^profile bad\.yaml cannot be used:\nline 1/, 'bad-profile'),
    );
  });

  it('M10 tell a window that is too short where it stands', () => {
    const problems = readProfileText(good.replace('  bootTime: 8m', '  bootTime: 8m\n  discoveryWindow: 20m')).problems;
    assert.deepEqual(
      lines(problems).map((text) => text.slice(0, 45)),
      ['6 boot.discoveryWindow: 20 min are not more t'],
    );
  });

  it('take nothing that grows: aliases, tags, a key twice, endless text', () => {
    const bomb = 'a: &a [x, x]\nb: [*a, *a, *a]\n';
    assert.match(lines(readProfileText(bomb).problems).join(), /2 : aliases \(\*name\) are not read here/);
    assert.match(lines(readProfileText(`${good}name: again\n`).problems).join(), /14 : Map keys must be unique/);
    assert.match(lines(readProfileText('x'.repeat(5 * 2 ** 20)).problems).join(), /at most 4194304 are read/);
    assert.ok(readProfileText('- [').problems.length > 0);
  });

  it('throw for no text whatever', () => {
    fc.assert(fc.property(fc.string({ maxLength: 200 }), (text) => void readProfileText(text)));
  });
});

const csv = `id,site,rack,bmc,serial,macs
m1,berlin,r1,10.0.0.1,SN1,b8:3f:d2:aa:00:01 b8:3f:d2:aa:00:02
m2,berlin,"r,2",bmc-2.example:443,"SN ""2""",
`;

describe('inventories', () => {
  it('are read as CSV and as YAML alike', () => {
    const yaml = `site: berlin
machines:
  - { id: m1, rack: r1, bmc: 10.0.0.1, serial: SN1, macs: ['b8:3f:d2:aa:00:01', 'b8:3f:d2:aa:00:02'] }
  - id: m2
    rack: "r,2"
    bmc: bmc-2.example:443
    serial: 'SN "2"'
`;
    const fromCsv = readInventory(csv, 'csv');
    const fromYaml = readInventory(yaml, 'yaml');
    assert.deepEqual(lines([...fromCsv.problems, ...fromYaml.problems]), []);
    assert.deepEqual(
      fromCsv.entries.map(({ line }) => line),
      [2, 3],
    );
    assert.deepEqual(
      fromYaml.entries.map(({ line }) => line),
      [3, 4],
    );
    assert.deepEqual(
      fromYaml.entries.map(({ machine }) => machine),
      fromCsv.entries.map(({ machine }) => machine),
    );
    assert.equal(fromCsv.entries[1]?.machine.serial, 'SN "2"');
  });

  it('tell every problem at once, with its line and column', () => {
    const bad = `id,site,bmc,serial,macs,pin
a b,berlin,https://10.0.0.1,SN1,,
m2,berlin,10.0.0.256,None,zz:zz,abc
m3,berlin,10.0.0.3,SN1
m4,berlin,10.0.0.4,SN4,b8:3f:d2:aa:00:01,
m4,berlin,10.0.0.4,sn4,B8:3F:D2:AA:00:01,
m5,berlin,10.0.0.5,SN5,be:3a:f2:b6:05:9f,
`;
    const problems = lines(readInventory(bad, 'csv').problems);
    const expected = [
      /^2 id: "a b" is no machine id/,
      /^2 bmc: "https:\/\/10\.0\.0\.1" is no address of a controller/,
      /^3 bmc: "10\.0\.0\.256" is no address/,
      /^3 serial: "None" is no serial number/,
      /^3 macs: "zz:zz" is no MAC address/,
      /^3 pin: "abc" is no pin/,
      /^4 : 4 fields, and the first line names 6/,
      /^6 id: m4 stands in line 5 already/,
      /^6 bmc: 10\.0\.0\.4 in site berlin stands in line 5 already/,
      /^6 serial: SN4 stands in line 5 already/,
      /^6 macs: b8:3f:d2:aa:00:01 stands in line 5 already/,
      /^7 macs: be:3a:f2:b6:05:9f is given by software/,
    ];
    for (const form of expected)
      assert.ok(
        problems.some((text) => form.test(text)),
        `${form} in\n${problems.join('\n')}`,
      );
    assert.equal(problems.length, expected.length, problems.join('\n'));
  });

  it('refuse a column that is not known, one that is missing, a password, and an empty file', () => {
    const head = lines(readInventory('id,site,bmcc,password\n', 'csv').problems);
    assert.deepEqual(
      head.map((text) => text.split(';')[0]),
      ['1 bmcc: there is no column "bmcc"', '1 password: there is no column "password"', '1 bmc: the column is missing'],
    );
    const secret = readInventory('id,site,bmc,credential\nm1,berlin,10.0.0.1,hunter2\n', 'csv').problems;
    assert.match(lines(secret).join(), /^2 credential: the credential is no reference/);
    assert.ok(!lines(secret).join().includes('hunter2'));
    assert.match(lines(readInventory('', 'csv').problems).join(), /the file is empty/);
    assert.match(lines(readInventory('machines: []', 'yaml').problems).join(), /machines: names no machine/);
  });

  it('CSV: what was quoted comes back as it was, wherever commas and line feeds stand', () => {
    const cell = fc
      .string({ unit: fc.constantFrom('a', 'b', ',', '"', '\n', '-'), minLength: 1, maxLength: 12 })
      .map((text) => text.trim());
    fc.assert(
      fc.property(
        fc.array(
          cell.filter((text) => text !== ''),
          { minLength: 1, maxLength: 6 },
        ),
        (serials) => {
          const rows = serials.map((serial, index) => `m${index},s,10.0.0.${index + 1},"${serial.replaceAll('"', '""')}"`);
          const { entries } = readInventory(`id,site,bmc,serial\n${rows.join('\r\n')}\n`, 'csv');
          assert.deepEqual(
            entries.map(({ machine }) => machine.serial),
            serials,
          );
        },
      ),
    );
  });

  it('M62 keep the digits of a serial number as they stand: none is a number to count with', () => {
    const serials = ['007', '1e5', '0x10', '12345678901234567890'];
    const yaml = `site: s\nmachines:\n${serials.map((serial, at) => `  - { id: m${at}, bmc: 10.0.0.${at + 1}, serial: ${serial} }`).join('\n')}`;
    const { entries, problems } = readInventory(yaml, 'yaml');
    assert.deepEqual(lines(problems), []);
    assert.deepEqual(
      entries.map(({ machine }) => machine.serial),
      serials,
    );
  });

  it('throw for no text whatever', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 200 }), fc.constantFrom('csv', 'yaml'), (text, format) => void readInventory(text, format)),
    );
  });
});
