/** First table: a command line about machines → the options its run receives. */
import assert from 'node:assert/strict';
import type { Command } from 'commander';
import { newEvidenceVerify } from '../../../cli/commands/evidence/verify.ts';
import { newFleetReimage } from '../../../cli/commands/fleet/reimage.ts';
import { newMachineAdd } from '../../../cli/commands/machine/add.ts';
import { newMachineEvidence } from '../../../cli/commands/machine/evidence.ts';
import { newMachineImport } from '../../../cli/commands/machine/import.ts';
import { newMachineList } from '../../../cli/commands/machine/list.ts';
import { newMachineBegin } from '../../../cli/commands/machine/runs.ts';
import { newMachineShow } from '../../../cli/commands/machine/show.ts';
import { newMachineSay } from '../../../cli/commands/machine/steer.ts';
import { newProfileValidate } from '../../../cli/commands/profile/validate.ts';
import { newSiteList, newSiteShow } from '../../../cli/commands/site/sites.ts';
import { createTestIo, createTestPorts, parseWith } from '../support.ts';

const ports = createTestPorts(createTestIo());

/** Each command has options of its own; the table compares them as values. */
type Run = (options: any) => Promise<void>;
type Make = (run: Run) => Command;

const add: Make = (run) => newMachineAdd(ports, run);
const imports: Make = (run) => newMachineImport(ports, run);
const provision: Make = (run) => newMachineBegin('provision', ports, run);
const inspect: Make = (run) => newMachineBegin('inspect', ports, run);
const retire: Make = (run) => newMachineBegin('retire', ports, run);
const override: Make = (run) => newMachineSay('override', ports, run);
const giveUp: Make = (run) => newMachineSay('give-up', ports, run);
const forget: Make = (run) => newMachineSay('forget', ports, run);
const reimage: Make = (run) => newFleetReimage(ports, run);

const why = ['--reason', 'x'];
const signed = { json: false, actor: 'ann', reason: 'x' };
const show = { json: false, machine: 'm', timeline: false, run: null, watch: false, intervalMs: 2_000 };

const accepted: readonly [string, Make, string[], unknown][] = [
  [
    'machine add',
    add,
    ['m', '--site', 's', '--bmc', 'b'],
    { json: false, actor: 'ann', machine: { id: 'm', siteId: 's', bmcAddress: 'b' } },
  ],
  [
    'machine add',
    add,
    [
      'm',
      ...'--site s --bmc b:1 --rack r --system 1 --credential vault://x --pin ab'.split(' '),
      ...'--serial S --uuid U --mac a --mac b --tenant t --actor bob'.split(' '),
    ],
    {
      json: false,
      actor: 'bob',
      machine: {
        id: 'm',
        siteId: 's',
        bmcAddress: 'b:1',
        rack: 'r',
        bmcSystemId: '1',
        credentialRef: 'vault://x',
        bmcPinSha256: 'ab',
        serial: 'S',
        uuid: 'U',
        macAddresses: ['a', 'b'],
        tenantId: 't',
      },
    },
  ],
  ['machine import', imports, ['i.csv'], { json: false, path: 'i.csv', format: null, dryRun: false, actor: 'ann' }],
  [
    'machine import',
    imports,
    ['i', '--format', 'yaml', '--dry-run'],
    { json: false, path: 'i', format: 'yaml', dryRun: true, actor: 'ann' },
  ],
  ['machine list', newMachineList, [], { json: false, state: null, site: null, limit: 1_000, after: '' }],
  [
    'machine list',
    newMachineList,
    ['--state', 'quarantined', '--site', 's', '--limit', '5', '--after', 'm'],
    { json: false, state: 'quarantined', site: 's', limit: 5, after: 'm' },
  ],
  ['machine show', newMachineShow, ['m'], show],
  ['machine show', newMachineShow, ['m', '--timeline'], { ...show, timeline: true }],
  ['machine show', newMachineShow, ['m', '--run', 'r'], { ...show, timeline: true, run: 'r' }],
  ['machine show', newMachineShow, ['m', '--watch', '--every', '10s'], { ...show, watch: true, intervalMs: 10_000 }],
  ['machine inspect', inspect, ['m', ...why], { ...signed, machine: 'm', yes: false }],
  [
    'machine provision',
    provision,
    ['m', '--profile', 'p.yaml', ...why, '--yes'],
    { ...signed, machine: 'm', profile: 'p.yaml', yes: true },
  ],
  ['machine retire', retire, ['m', ...why], { ...signed, machine: 'm', yes: false }],
  ['machine override', override, ['m', '--step', 'boot', ...why, '--yes'], { ...signed, machine: 'm', step: 'boot', yes: true }],
  ['machine override', override, ['m', ...why], { ...signed, machine: 'm', yes: false }],
  ['machine give-up', giveUp, ['m', ...why], { ...signed, machine: 'm', yes: false }],
  ['machine forget', forget, ['m', ...why], { ...signed, machine: 'm', yes: false }],
  ['machine evidence', newMachineEvidence, ['m', '--out', 'e.json'], { json: false, machine: 'm', run: null, out: 'e.json' }],
  ['machine evidence', newMachineEvidence, ['m', '--run', 'r', '--out', 'e'], { json: false, machine: 'm', run: 'r', out: 'e' }],
  ['site list', newSiteList, [], { json: false }],
  ['site show', newSiteShow, ['s'], { json: false, site: 's' }],
  ['profile validate', newProfileValidate, ['p.yaml'], { json: false, path: 'p.yaml' }],
  ['evidence verify', newEvidenceVerify, ['e.json', '--pin', 'x', '--pki', 'p'], { json: false, path: 'e.json', pin: 'x', pki: 'p' }],
  [
    'fleet reimage',
    reimage,
    ['a', 'b', '--profile', 'p', '--run', 'spring', ...why],
    { ...signed, machines: ['a', 'b'], site: null, profile: 'p', run: 'spring', limits: {}, stop: {}, yes: false },
  ],
  [
    'fleet reimage',
    reimage,
    [
      ...'--site s --profile p --run spring --at-once 9 --per-rack 2 --per-site 8'.split(' '),
      ...'--max-failures 1 --max-failure-percent 5 --yes'.split(' '),
      ...why,
    ],
    {
      ...signed,
      machines: [],
      site: 's',
      profile: 'p',
      run: 'spring',
      limits: { total: 9, perRack: 2, perSite: 8 },
      stop: { maxFailures: 1, maxFailurePercent: 5 },
      yes: true,
    },
  ],
];

const refused: readonly [string, Make, string[], RegExp][] = [
  ['machine add', add, ['m', '--site', 's'], /required option '--bmc <address>' not specified/],
  ['machine add', add, ['m', '--bmc', 'b'], /required option '--site <site>' not specified/],
  ['machine add', add, ['--site', 's', '--bmc', 'b'], /missing required argument 'machine'/],
  ['machine add', add, ['m', '--site', 's', '--bmc', 'b', '--password', 'x'], /unknown option '--password'/],
  ['machine import', imports, ['i', '--format', 'xlsx'], /Allowed choices are csv, yaml/],
  ['machine list', newMachineList, ['--state', 'lost'], /Allowed choices are registered, inspecting, available/],
  ['machine list', newMachineList, ['--limit', '0'], /a whole number above 0/],
  ['machine show', newMachineShow, ['m', '--every', '5'], /a number with a unit/],
  ['machine inspect', inspect, ['m'], /required option '--reason <text>' not specified/],
  ['machine inspect', inspect, ['m', ...why, '--yes'], /unknown option '--yes'/],
  ['machine provision', provision, ['m', ...why], /required option '--profile <file>' not specified/],
  ['machine retire', retire, ['m', '--reason', ' '], /A reason has words/],
  ['machine override', override, ['m', '--step', 'boot'], /required option '--reason <text>' not specified/],
  ['machine give-up', giveUp, ['m', '--step', 'boot', ...why], /unknown option '--step'/],
  ['machine evidence', newMachineEvidence, ['m'], /required option '--out <file>' not specified/],
  ['site show', newSiteShow, [], /missing required argument 'site'/],
  ['profile validate', newProfileValidate, ['a', 'b'], /too many arguments/],
  ['evidence verify', newEvidenceVerify, [], /missing required argument 'file'/],
  ['fleet reimage', reimage, ['a', '--profile', 'p', ...why], /required option '--run <name>' not specified/],
  ['fleet reimage', reimage, ['a', '--profile', 'p', '--run', 'r', '--per-rack', '-1', ...why], /a whole number above 0/],
];

describe('what a command line about machines means', () => {
  for (const [name, command, argv, options] of accepted) {
    it(`${name} ${argv.join(' ')}`.trim(), async () => assert.deepEqual(await parseWith(command, argv), options));
  }
  for (const [name, command, argv, message] of refused) {
    it(`refuses: ${name} ${argv.join(' ')}`.trim(), () => assert.rejects(parseWith(command, argv), message));
  }
});
