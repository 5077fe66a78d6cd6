/** What a GET of a fake controller shows: its tree, with what behaves laid over it, expanded where it was asked for. */
import { createHash } from 'node:crypto';
import type { FakeAccounts } from './accounts.ts';
import { allResetTypes, type FakeMachine } from './machine.ts';
import type { Body, Tree } from './trees.ts';
import type { FakeBmcOptions } from './types.ts';

export const sessionsPath = '/redfish/v1/SessionService/Sessions';

const asBody = (value: unknown): Body | undefined =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Body) : undefined;

export interface ViewPorts {
  readonly tree: Tree;
  readonly machine: FakeMachine;
  readonly accounts: FakeAccounts;
  readonly options: FakeBmcOptions;
  readonly now: () => number;
}

type Overlay = (body: Body, isLook: boolean) => Body;

export class FakeView {
  readonly #ports: ViewPorts;
  readonly #overlays: ReadonlyMap<string, Overlay>;

  constructor(ports: ViewPorts) {
    this.#ports = ports;
    const { tree, machine } = ports;
    this.#overlays = new Map<string, Overlay>([
      ['/redfish/v1', (body) => (machine.has('no-expand') ? { ...body, ProtocolFeaturesSupported: {} } : body)],
      [tree.system, (body, isLook) => this.#system(body, isLook)],
      [`${tree.system}/Settings`, (body) => ({ ...body, Boot: { ...asBody(body['Boot']), ...this.#boot(body) } })],
      [tree.manager, (body) => ({ ...body, DateTime: new Date(ports.now()).toISOString() })],
      [
        tree.account,
        (body) => ({ ...body, UserName: ports.options.credential.username, Locked: ports.now() < machine.state.lockedUntilMs }),
      ],
      ['/redfish/v1/AccountService', (body) => ({ ...body, AccountLockoutThreshold: ports.options.lockoutThreshold ?? 3 })],
    ]);
  }

  /** undefined: 404. @param isLook somebody sees it */
  read(path: string, isLook = true): Body | undefined {
    const { tree, options } = this.#ports;
    const body = this.#sessions(path) ?? this.#actionInfo(path) ?? this.#settings(path) ?? tree.read(path);
    if (body === undefined) return undefined;
    const laid = this.#media(path, this.#overlays.get(path)?.(body, isLook) ?? body);
    const given = options.overrides !== undefined && Object.hasOwn(options.overrides, path) ? options.overrides[path] : {};
    return { ...laid, ...given };
  }

  /** References of its own become what they lead to, one level down; what lies in Links stays. */
  expanded(body: Body): Body {
    const expand = (value: unknown): unknown => {
      if (Array.isArray(value)) return value.map(expand);
      const reference = asBody(value);
      const id = reference?.['@odata.id'];
      if (reference === undefined || typeof id !== 'string' || Object.keys(reference).length !== 1) return value;
      return this.read(id) ?? value;
    };
    const kept = new Set(['Links', 'Oem', '@Redfish.Settings', 'Actions']);
    return Object.fromEntries(Object.entries(body).map(([name, value]) => [name, kept.has(name) ? value : expand(value)]));
  }

  /** As the ETag header carries it. */
  tagOf(body: Body): string {
    const { machine } = this.#ports;
    const hash = createHash('sha256').update(JSON.stringify(body)).digest('hex').slice(0, 12);
    if (machine.has('etag-double-quoted')) return `""${hash}""`;
    return machine.has('etag-weak-refused') ? `W/"${hash}"` : `"${hash}"`;
  }

  #system(body: Body, isLook: boolean): Body {
    const { machine, tree } = this.#ports;
    const power = machine.shows(isLook);
    const odd = { On: 'Chassis Power is on', Off: 'Chassis Power is off', PoweringOn: '???', PoweringOff: '???' } as const;
    const { LastResetTime: _time, BootProgress: progress, PowerState: _power, ...rest } = body;
    const last = new Date(machine.lastResetMs).toISOString();
    return {
      ...rest,
      ...(machine.has('no-power-state') ? {} : { PowerState: machine.has('odd-power-words') ? odd[power] : power }),
      ...(machine.has('no-reset-time') ? {} : { LastResetTime: last }),
      ...(machine.has('no-reset-time') || progress === undefined ? {} : { BootProgress: { LastState: 'OSRunning', LastStateTime: last } }),
      Boot: { ...asBody(body['Boot']), ...this.#boot(body) },
      Actions: { ...asBody(body['Actions']), '#ComputerSystem.Reset': this.#resetAction(body) },
      ...(machine.has('settings-object') ? { '@Redfish.Settings': { SettingsObject: { '@odata.id': `${tree.system}/Settings` } } } : {}),
    };
  }

  #boot(body: Body): Body {
    const { machine } = this.#ports;
    const { target, enabled, mode, url } = machine.state.boot;
    const hasMode = asBody(body['Boot'])?.['BootSourceOverrideMode'] !== undefined;
    return {
      BootSourceOverrideTarget: target,
      BootSourceOverrideEnabled: enabled,
      ...(hasMode ? { BootSourceOverrideMode: mode } : {}),
      ...(machine.has('http-boot-uri') ? { HttpBootUri: url } : {}),
    };
  }

  #resetAction(body: Body): Body {
    const { machine, tree } = this.#ports;
    const action = asBody(asBody(body['Actions'])?.['#ComputerSystem.Reset']) ?? {};
    const { 'ResetType@Redfish.AllowableValues': values, ...rest } = action;
    if (machine.has('action-info-only')) return { ...rest, '@Redfish.ActionInfo': `${tree.system}/ResetActionInfo` };
    return values === undefined ? action : { ...rest, 'ResetType@Redfish.AllowableValues': this.#without(values as string[]) };
  }

  #without(types: readonly string[]): string[] {
    return types.filter((type) => type !== 'PowerCycle' || !this.#ports.machine.has('no-power-cycle'));
  }

  /** What the reset action takes. */
  resetTypes(): readonly string[] {
    const { tree } = this.#ports;
    const action = asBody(asBody(tree.read(tree.system)?.['Actions'])?.['#ComputerSystem.Reset']) ?? {};
    return this.#without((action['ResetType@Redfish.AllowableValues'] as string[] | undefined) ?? allResetTypes);
  }

  #actionInfo(path: string): Body | undefined {
    const { tree } = this.#ports;
    if (path !== `${tree.system}/ResetActionInfo`) return undefined;
    const parameter = { Name: 'ResetType', Required: true, DataType: 'String', AllowableValues: this.resetTypes() };
    return { '@odata.id': path, Id: 'ResetActionInfo', Name: 'Reset Action Info', Parameters: [parameter] };
  }

  #settings(path: string): Body | undefined {
    const { machine, tree } = this.#ports;
    if (path !== `${tree.system}/Settings` || !machine.has('settings-object')) return undefined;
    return {
      '@odata.id': path,
      Id: 'Settings',
      Name: 'Pending',
      Boot: { BootSourceOverrideTarget: 'None', BootSourceOverrideMode: 'UEFI' },
    };
  }

  #sessions(path: string): Body | undefined {
    const { accounts, machine } = this.#ports;
    if (path !== sessionsPath && !path.startsWith(`${sessionsPath}/`)) return undefined;
    if (machine.has('no-sessions')) return undefined;
    const one = accounts.sessions.get(path.slice(sessionsPath.length + 1));
    if (one !== undefined) return { '@odata.id': path, Id: one.id, Name: 'Session', UserName: one.user, ClientOriginIPAddress: one.from };
    if (path !== sessionsPath) return undefined;
    const members = [...accounts.sessions.keys()].map((id) => ({ '@odata.id': `${sessionsPath}/${id}` }));
    return { '@odata.id': path, Name: 'Sessions', 'Members@odata.count': members.length, Members: members };
  }

  #media(path: string, body: Body): Body {
    const { machine } = this.#ports;
    if (!/\/VirtualMedia\/[^/]+$/.test(path)) return body;
    const image = machine.state.media.get(path);
    const isFirstCd = machine.has('media-slot-refuses') && path.endsWith('/Cd1');
    return { ...body, Image: image ?? null, Inserted: image !== undefined, ...(isFirstCd ? { Actions: {} } : {}) };
  }
}
