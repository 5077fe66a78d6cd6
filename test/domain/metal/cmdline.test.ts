import assert from 'node:assert/strict';
import fc from 'fast-check';
import { ControlError } from '../../../domain/errors.ts';
import {
  type BootCmdline,
  encodeBootCmdline,
  maxCmdlineLength,
  parseBootCmdline,
  problemOfKernelArgs,
} from '../../../domain/metal/cmdline.ts';

const good: BootCmdline = {
  site: 'http://10.0.2.2:8081',
  entryId: 'entry-1',
  token: 'A'.repeat(43),
  bootNonce: '00112233445566778899aabbccddeeff',
  nodeId: 'rack-1.machine_7',
  runId: '0123456789ab',
  gatewayUrl: 'https://gateway.example:7443',
  pins: 'eyJmb3JtYXQiOiJ4In0',
  macAddress: '52:54:00:12:34:56',
};

const refusal = (message: RegExp) => (error: unknown) =>
  error instanceof ControlError && error.code === 'INVALID_INPUT' && error.details['reason'] === 'cmdline' && message.test(error.message);

describe("the ramdisk's command line", () => {
  it('reads back what was written, among whatever else stands on the line', () => {
    const line = encodeBootCmdline(good, ' console=ttyS0,115200  quiet ');
    assert.match(line, /^bc\.site=http:\/\/10\.0\.2\.2:8081 bc\.entry=entry-1 bc\.token=A{43} .* console=ttyS0,115200 quiet$/);
    assert.deepEqual(parseBootCmdline(`BOOT_IMAGE=/vmlinuz initrd=initramfs ${line}\n`), good);
  });

  const text = (form: RegExp) => fc.stringMatching(form);
  it('reads back every line that it writes', () => {
    const values = fc.record(
      {
        site: text(/^http:\/\/[a-z0-9]{1,20}:[0-9]{1,5}$/),
        entryId: text(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/),
        token: text(/^[A-Za-z0-9_-]{22,64}$/),
        bootNonce: text(/^[0-9a-f]{32}$/),
        nodeId: text(/^[A-Za-z0-9._-]{1,63}$/),
        runId: text(/^[0-9a-f]{12}$/),
        gatewayUrl: text(/^https:\/\/[a-z0-9]{1,20}:[0-9]{1,5}$/),
        pins: text(/^[A-Za-z0-9_-]{1,400}$/),
        macAddress: text(/^([0-9a-f]{2}:){5}[0-9a-f]{2}$/),
      },
      { noNullPrototype: true },
    );
    fc.assert(fc.property(values, (one) => assert.deepEqual(parseBootCmdline(encodeBootCmdline(one)), one)));
  });

  it('says everything that is missing, double or has not its form, and never the token', () => {
    assert.throws(() => parseBootCmdline('quiet'), refusal(/bc\.site is missing; bc\.entry is missing; .* bc\.mac is missing$/));
    const line = encodeBootCmdline(good);
    assert.throws(() => parseBootCmdline(`${line} bc.node=other`), refusal(/: bc\.node stands 2 times$/));
    const bad = line.replace('bc.nonce=0011', 'bc.nonce=001x').replace(`bc.token=${good.token}`, 'bc.token=se\u0000cret!');
    assert.throws(
      () => parseBootCmdline(bad),
      (error) => refusal(/bc\.token must be base64url of 16 to 256 bytes; bc\.nonce must be 32 lower-case hex digits, not "001x/)(error),
    );
    for (const [key, value] of [
      ['site', 'http://a:1/path'],
      ['site', 'ftp://a:1'],
      ['gatewayUrl', 'http://gateway.example:1'],
      ['runId', '0123456789AB'],
      ['nodeId', 'a b'],
      ['macAddress', '52-54-00-12-34-56'],
    ] as const)
      assert.throws(() => encodeBootCmdline({ ...good, [key]: value }), refusal(/must be/), `${key} ${value}`);
  });

  it('refuses a line that a kernel would cut', () => {
    assert.throws(
      () => encodeBootCmdline(good, Array.from({ length: 10 }, () => 'x'.repeat(200)).join(' ')),
      refusal(new RegExp(`a kernel reads ${maxCmdlineLength}$`)),
    );
  });

  it('takes no argument of a command that a boot loader would act on, or that speaks for the boot server', () => {
    assert.equal(problemOfKernelArgs(''), null);
    assert.equal(problemOfKernelArgs('console=ttyS0,115200n8 root=/dev/ram0 i=50%'), null);
    for (const args of ['a=${net0/mac}', 'x || shell', 'x && y', "a='b'", 'a="b"', 'a|b', 'a\\b', 'a\u00e4', '#!ipxe', 'x'.repeat(257)])
      assert.match(problemOfKernelArgs(args) ?? 'taken', /holds a character that a boot loader may take for its own/, args);
    assert.match(problemOfKernelArgs('quiet bc.token=AAAA') ?? 'taken', /"bc\.token=AAAA" is for the boot server to say/);
    assert.throws(() => encodeBootCmdline(good, 'quiet\nshell || bc.node=x'), refusal(/kernel arguments: /));
  });
});
