/** What a site agent reads from whoever is on its provisioning network, and from commands that a hostile control plane made. */
import { encodeAssertRequest, parseAssertRequest } from '../../daemon/site/boot/assert-request.ts';
import { encodeProxyAnswer, parseDhcp } from '../../daemon/site/boot/dhcp-packets.ts';
import { proxyAnswer } from '../../daemon/site/boot/proxy-answer.ts';
import { parseRange } from '../../daemon/site/boot/range.ts';
import { agree, parseTftp } from '../../daemon/site/boot/tftp-packets.ts';
import { judgeTarget, parseAllowRule } from '../../daemon/site/proxy/allow.ts';
import { encodeBootCmdline, parseBootCmdline } from '../../domain/metal/cmdline.ts';
import { caughtPackets, clientPacket } from '../daemon/dhcp-packets.ts';
import type { Target } from './engine.ts';
import { mutateJson } from './mutate-text.ts';
import { bytesOf, mutatorsOf, textOf } from './world.ts';

const small = 4_096;

export function siteTargets(): Target[] {
  const rules = ['https://10.0.0.0/8', 'https://*.site.example/redfish/'].flatMap((text) => parseAllowRule(text).rule ?? []);
  const line = encodeBootCmdline({
    site: 'http://10.0.2.2:8081',
    entryId: 'entry-1',
    token: 'A'.repeat(43),
    bootNonce: '0'.repeat(32),
    nodeId: 'machine-1',
    runId: '0123456789ab',
    gatewayUrl: 'https://gateway.example:7443',
    pins: 'eyJ9',
    macAddress: '52:54:00:00:00:01',
  });
  const asked = {
    token: new Uint8Array(32),
    csrSha256: 'a'.repeat(64),
    macAddress: '52:54:00:00:00:01',
    systemUuid: 'u',
    systemSerial: 's',
  };
  return [
    {
      name: 'boot-cmdline',
      maxBytes: small,
      seeds: [bytesOf(line)],
      mutators: mutatorsOf(small),
      run: (input) => parseBootCmdline(textOf(input)),
    },
    {
      name: 'assert-request',
      maxBytes: small,
      seeds: [bytesOf(encodeAssertRequest(asked))],
      mutators: mutatorsOf(small, mutateJson),
      run: (input) => parseAssertRequest(input),
    },
    {
      name: 'tftp',
      maxBytes: 2_048,
      seeds: [
        bytesOf('\0\u0001undionly.kpxe\0octet\0blksize\u00001400\0tsize\u00000\0'),
        bytesOf('\0\u0004\0\u0001'),
        bytesOf('\0\u0005\0\u0001no\0'),
      ],
      mutators: mutatorsOf(2_048),
      run: (input) => {
        const read = parseTftp(input);
        if (read.kind === 'read') agree(read.options, 1_000);
      },
    },
    {
      name: 'dhcp',
      maxBytes: 1_600,
      seeds: [...Object.values(caughtPackets), clientPacket({ messageType: 3, client: '10.0.0.9' })],
      mutators: mutatorsOf(1_600),
      run: (input) => {
        const request = parseDhcp(input);
        const answer = proxyAnswer(request, { loaders: { bios: 'undionly.kpxe' }, scriptUrl: 'http://10.0.0.1:8081/ipxe/m' });
        if (answer.kind === 'file') encodeProxyAnswer(request, { server: '10.0.0.1', file: answer.file });
      },
    },
    {
      name: 'http-range',
      maxBytes: small,
      seeds: [bytesOf('bytes=0-99'), bytesOf('bytes=-5')],
      mutators: mutatorsOf(small),
      run: (input) => {
        const range = parseRange(textOf(input), { sizeBytes: 1_000, etag: '"x"', ifRange: undefined });
        if (range.kind === 'part' && !(range.first >= 0 && range.first <= range.last && range.last < 1_000))
          throw new RangeError('a range beyond its file');
      },
    },
    {
      name: 'proxy-url',
      maxBytes: small,
      seeds: [bytesOf('https://10.1.2.3/redfish/v1'), bytesOf('https://bmc.site.example/redfish/v1?a=b')],
      mutators: mutatorsOf(small),
      run: (input) => {
        const { url, rule } = judgeTarget(textOf(input), rules);
        if (rule.path !== '/' && !url.pathname.startsWith(rule.path)) throw new RangeError('a path beyond its rule');
      },
    },
    {
      name: 'proxy-rule',
      maxBytes: small,
      seeds: [bytesOf('https://10.0.0.0/8:443'), bytesOf('https://*.site.example/redfish/')],
      mutators: mutatorsOf(small),
      run: (input) => parseAllowRule(textOf(input)),
    },
  ];
}
