/** What the protocol declares, and where it is written down. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { DescEnum, DescMessage, DescService } from '@bufbuild/protobuf';
import { nestedTypes } from '@bufbuild/protobuf/reflect';
import * as proto from '../../proto/index.ts';
import { projectRoot, sourcesOf } from '../harness/imports.ts';

type Generated = DescMessage | DescEnum | DescService;

const isGenerated = (value: unknown): value is Generated =>
  typeof value === 'object' && value !== null && 'kind' in value && ['message', 'enum', 'service'].includes(String(value.kind));

const generated = [...Object.values<unknown>(proto), ...Object.values<unknown>(proto.site), ...Object.values<unknown>(proto.driver)].filter(
  isGenerated,
);
const messages = generated.filter((type) => type.kind === 'message');

describe('what the protocol declares', () => {
  it('TRN-037 TRN-038 TRN-039 TRN-040 TRN-041 is the service of session.proto: Join, Renew, the stream of a session and that of a tunnel', () => {
    const { file, methods, typeName } = proto.AgentGateway;
    assert.deepEqual([typeName, file.name], ['bettercompute.agent.v1.AgentGateway', 'bettercompute/agent/v1/session']);
    assert.deepEqual(
      methods.map(({ name, methodKind, input, output }) => [name, methodKind, input.name, output.name]),
      [
        ['Join', 'unary', 'JoinRequest', 'JoinResponse'],
        ['Renew', 'unary', 'RenewRequest', 'RenewResponse'],
        ['Session', 'bidi_streaming', 'AgentFrame', 'ServerFrame'],
        ['Tunnel', 'bidi_streaming', 'TunnelFrame', 'TunnelFrame'],
      ],
    );
    const callers = proto.TunnelGateway.methods.map(({ name, methodKind, input, output }) => [name, methodKind, input.name, output.name]);
    assert.deepEqual(callers, [['Connect', 'bidi_streaming', 'TunnelFrame', 'TunnelFrame']]);
  });

  it('FRM-004 has these frame cases, under these numbers', () => {
    const casesOf = (schema: DescMessage): string[] => schema.oneofs[0]?.fields.map(({ number, name }) => `${number} ${name}`) ?? [];
    assert.deepEqual(casesOf(proto.AgentFrameSchema), [
      '1 hello',
      '2 status',
      '3 command_ack',
      '4 command_reject',
      '5 command_result',
      '6 command_progress',
      '7 heartbeat',
      '8 trust_refused',
      '9 workload_token_request',
      '10 secret_request',
      '12 event_report',
    ]);
    assert.deepEqual(casesOf(proto.ServerFrameSchema), [
      '1 welcome',
      '2 command',
      '3 desired_state',
      '4 result_receipt',
      '5 heartbeat_ack',
      '6 drain',
      '7 revocation',
      '8 cancel_command',
      '9 workload_token_response',
      '10 secret_response',
      '11 open_tunnel',
      '12 event_receipt',
    ]);
    assert.deepEqual(casesOf(proto.TunnelFrameSchema), ['1 opened', '2 data', '3 resize', '4 closed', '5 ticket']);
  });

  it('TRN-035 has the packages of site agents and of drivers as namespaces of their own', () => {
    const packagesOf = (namespace: Record<string, unknown>): string[] => [
      ...new Set(Object.values(namespace).flatMap((value) => (isGenerated(value) ? [value.file.proto.package] : []))),
    ];
    assert.deepEqual(packagesOf(proto.site), ['bettercompute.site.v1']);
    assert.deepEqual(packagesOf(proto.driver), ['bettercompute.driver.v1']);
  });

  it('TRN-036 has every message in its registry, by its type name', () => {
    assert.ok(messages.length > 40);
    for (const message of messages.flatMap((top) => [top, ...nestedTypes(top)])) {
      if (message.kind === 'message') assert.equal(proto.protocolRegistry.getMessage(message.typeName), message, message.typeName);
    }
  });

  it('TRN-033 exports the helpers that both ends share', () => {
    const helpers = Object.entries(proto)
      .filter(([, value]) => typeof value === 'function' && !Function.prototype.toString.call(value).startsWith('class '))
      .map(([name]) => name)
      .sort();
    assert.deepEqual(helpers, [
      'closePayload',
      'decodeGrpcMessage',
      'decodeMessage',
      'embeddedMessage',
      'encodeCloseReason',
      'encodeGrpcMessage',
      'encodeMessage',
      'encodeWebSocketFrame',
      'envelopeOf',
      'frameMessage',
      'isCloseCode',
      'isProtocolRange',
      'negotiateProtocolVersion',
      'parseCloseReason',
      'signingInput',
      'u64be',
      'writePrefix',
    ]);
  });

  it('TRN-034 runs in a browser: no name that only node has', () => {
    for (const file of sourcesOf('proto').filter((path) => !path.includes('/gen/'))) {
      const code = readFileSync(join(projectRoot, file), 'utf8').replaceAll(/\/\*[\s\S]*?\*\/|\/\/.*/g, '');
      assert.doesNotMatch(code, /\b(Buffer|process|require|__dirname|setImmediate)\b|node:/, file);
    }
  });

  it('TRN-005 is written down whole: every service, call, message, field and enum value has its line and its comment', () => {
    const page = readFileSync(join(projectRoot, 'docs/protocol.md'), 'utf8');
    const sections = new Map(page.split('\n### ').map((text) => [text.slice(0, text.indexOf('\n')), text]));
    const hasLine = (section: string, start: string): void => {
      const line = sections
        .get(section)
        ?.split('\n')
        .find((one) => one.startsWith(start));
      assert.match(line ?? '', /\| [^|]*\w.* \|$/, `${section}: ${start}`);
    };
    for (const type of generated) {
      const title = type.kind === 'service' ? `service ${type.name}` : type.name;
      assert.match(sections.get(title) ?? '', /^[^\n]+\n\n[A-Z"][^\n]+\.\n/, `${title} and its comment`);
      if (type.kind === 'service') for (const { name } of type.methods) hasLine(title, `| ${name} |`);
      if (type.kind === 'message') for (const { number, name } of type.fields) hasLine(title, `| ${number} | ${name} |`);
      if (type.kind === 'enum') for (const { number, name } of type.values) hasLine(title, `| ${number} | ${name} |`);
    }
  });
});
