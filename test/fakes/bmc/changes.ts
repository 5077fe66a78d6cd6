/** What POST, PATCH and DELETE do to a fake controller. */
import type { IncomingMessage } from 'node:http';
import type { FakeAccounts } from './accounts.ts';
import type { FakeMachine } from './machine.ts';
import type { Body, Tree } from './trees.ts';
import type { FakeBmcOptions } from './types.ts';
import { type FakeView, sessionsPath } from './view.ts';

export interface Answer {
  readonly status: number;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

export const complaint = (status: number, id: string, args: readonly string[] = []): Answer => {
  const text = `${id}${args.length === 0 ? '' : `: ${args.join(', ')}`}`;
  const info = { MessageId: `Base.1.12.${id}`, Message: text, MessageArgs: args, Severity: 'Critical', Resolution: 'None' };
  return {
    status,
    body: { error: { code: 'Base.1.12.GeneralError', message: 'A general error has occurred.', '@Message.ExtendedInfo': [info] } },
  };
};

export interface ChangePorts {
  readonly tree: Tree;
  readonly machine: FakeMachine;
  readonly accounts: FakeAccounts;
  readonly view: FakeView;
  readonly options: FakeBmcOptions;
}

export class FakeChanges {
  managerResets = 0;
  readonly #ports: ChangePorts;
  readonly #tasks = new Map<string, { looks: number }>();
  #refusedInPost = 0;
  #mediaBusy = 0;
  #needsReset: boolean;

  constructor(ports: ChangePorts) {
    this.#ports = ports;
    this.#needsReset = ports.machine.has('needs-manager-reset');
  }

  /** Answers nothing but 504 until it was reset. */
  get isStuck(): boolean {
    return this.#needsReset;
  }

  async post(path: string, body: Body, request: IncomingMessage): Promise<Answer> {
    const { tree } = this.#ports;
    if (path === sessionsPath) return this.#openSession(body, request);
    if (path === `${tree.system}/Actions/ComputerSystem.Reset`) return this.#reset(String(body['ResetType']));
    if (path === `${tree.manager}/Actions/Manager.Reset`) {
      this.managerResets += 1;
      this.#needsReset = false;
      return { status: 204 };
    }
    const media = /^(.+\/VirtualMedia\/[^/]+)\/Actions\/VirtualMedia\.(Insert|Eject)Media$/.exec(path);
    if (media !== null) return this.#moveMedia(media[1] ?? '', media[2] === 'Insert' ? String(body['Image']) : null);
    return complaint(405, 'ActionNotSupported', [path]);
  }

  patch(path: string, body: Body, ifMatch: string | undefined): Answer {
    const { view, tree } = this.#ports;
    const resource = view.read(path, false);
    if (resource === undefined) return complaint(404, 'ResourceMissingAtURI', [path]);
    const stale = this.#judgeTag(view.tagOf(resource), ifMatch);
    if (stale !== null) return stale;
    if (path === tree.account) return this.#changePassword(body);
    if (path === tree.system || path === `${tree.system}/Settings`) return this.#changeBoot(path, body);
    return complaint(405, 'PropertyNotWritable', [path]);
  }

  delete(path: string): Answer {
    if (!path.startsWith(`${sessionsPath}/`)) return complaint(405, 'ResourceCannotBeDeleted');
    return this.#ports.accounts.close(path.slice(sessionsPath.length + 1))
      ? { status: 204 }
      : complaint(404, 'ResourceMissingAtURI', [path]);
  }

  /** Monitors and tasks; undefined for another path. */
  readTask(path: string): Answer | undefined {
    const id = /^\/redfish\/v1\/TaskService\/(?:TaskMonitors|Tasks)\/([0-9]+)$/.exec(path)?.[1];
    const task = id === undefined ? undefined : this.#tasks.get(id);
    if (task === undefined) return undefined;
    task.looks += 1;
    const { machine } = this.#ports;
    const isDone = task.looks > 1;
    if (path.includes('/Tasks/')) {
      const state = isDone ? { TaskState: 'Completed', TaskStatus: 'OK' } : { TaskState: 'Running', PercentComplete: 50 };
      return { status: 200, body: { '@odata.id': path, Id: id, Name: 'Task', ...state } };
    }
    if (isDone && machine.has('tasks-forgotten')) return complaint(404, 'ResourceMissingAtURI', [path]);
    return isDone ? { status: 204 } : { status: 202, headers: { 'retry-after': '1' }, body: { TaskState: 'Running' } };
  }

  #openSession(body: Body, request: IncomingMessage): Answer {
    const { accounts, machine } = this.#ports;
    if (machine.has('no-sessions')) return complaint(404, 'ResourceMissingAtURI', [sessionsPath]);
    const user = String(body['UserName']);
    if (!accounts.login(user, String(body['Password']))) return complaint(401, 'ResourceAtUriUnauthorized', [sessionsPath]);
    const session = accounts.open(user, request.socket.remoteAddress ?? '');
    if (session === null) return complaint(503, 'SessionLimitExceeded');
    const path = `${sessionsPath}/${session.id}`;
    return {
      status: 201,
      headers: { 'x-auth-token': session.token, location: path },
      body: { '@odata.id': path, Id: session.id, UserName: user },
    };
  }

  async #reset(type: string): Promise<Answer> {
    const { machine, view } = this.#ports;
    machine.resetsAsked.push(type);
    if (!view.resetTypes().includes(type)) return complaint(400, 'ActionParameterValueNotInList', [type, 'ResetType']);
    const isOff = machine.state.power === 'Off';
    const did = await machine.reset(type);
    if (!did && (machine.has('conflict-in-state') || (isOff && /Restart|Cycle/.test(type))))
      return complaint(409, 'ActionParameterValueConflict', ['ResetType', type]);
    if (machine.has('conflict-although-done')) return complaint(409, 'ResourceInUse');
    return machine.has('tasks') || machine.has('task-uri') ? this.#newTask() : { status: 204 };
  }

  #newTask(): Answer {
    const id = String(this.#tasks.size + 1);
    this.#tasks.set(id, { looks: 0 });
    const kind = this.#ports.machine.has('task-uri') ? 'Tasks' : 'TaskMonitors';
    return { status: 202, headers: { location: `/redfish/v1/TaskService/${kind}/${id}`, 'retry-after': '1' } };
  }

  #moveMedia(slot: string, image: string | null): Answer {
    const { machine, view } = this.#ports;
    const resource = view.read(slot);
    if (resource === undefined) return complaint(404, 'ResourceMissingAtURI', [slot]);
    if (Object.keys((resource['Actions'] as Body | undefined) ?? {}).length === 0) return complaint(405, 'ActionNotSupported');
    if (image === null) this.#mediaBusy = machine.has('media-busy') ? 2 : 0;
    else if (this.#mediaBusy-- > 0) return complaint(503, 'ServiceTemporarilyUnavailable', ['5']);
    machine.moveMedia(slot, image);
    return { status: 204 };
  }

  #judgeTag(tag: string, ifMatch: string | undefined): Answer | null {
    const { machine } = this.#ports;
    if (ifMatch === undefined) {
      if (machine.has('etag-required')) return complaint(428, 'PreconditionRequired');
      return machine.has('etag-precondition') ? complaint(412, 'PreconditionFailed') : null;
    }
    if (machine.has('etag-never-matches')) return complaint(412, 'PreconditionFailed');
    const wanted = tag.replace(/^W\//, '').replaceAll('""', '"');
    return ifMatch === '*' || ifMatch === wanted ? null : complaint(412, 'PreconditionFailed');
  }

  #changePassword(body: Body): Answer {
    const { accounts, machine, view } = this.#ports;
    const { Password: password } = body;
    if (typeof password !== 'string') return complaint(400, 'PropertyValueTypeError');
    const service = view.read('/redfish/v1/AccountService') ?? {};
    const least = Number(service['MinPasswordLength'] ?? 0);
    const most = Number(service['MaxPasswordLength'] ?? 40);
    if (password.length < least || password.length > most) return complaint(400, 'PropertyValueFormatError', [password, 'Password']);
    accounts.setPassword(password);
    return machine.has('password-half-done') ? { status: 504, body: '<html><h1>Gateway Time-out</h1></html>' } : { status: 204 };
  }

  #changeBoot(path: string, body: Body): Answer {
    const { machine, tree } = this.#ports;
    const boot = body['Boot'] as Body | undefined;
    if (boot === undefined) return complaint(400, 'PropertyUnknown');
    if (machine.has('settings-object') && path === tree.system)
      return complaint(400, 'OperationSupportedInFutureStateURI', [`${tree.system}/Settings`]);
    if (machine.has('busy-in-post') && this.#refusedInPost++ < 2) return complaint(503, 'UnableToModifyDuringSystemPOST');
    const text = (name: string): string | undefined => (typeof boot[name] === 'string' ? boot[name] : undefined);
    if (text('HttpBootUri') !== undefined && !machine.has('http-boot-uri')) return complaint(400, 'PropertyUnknown', ['HttpBootUri']);
    const changes = {
      target: text('BootSourceOverrideTarget'),
      enabled: text('BootSourceOverrideEnabled'),
      mode: text('BootSourceOverrideMode'),
      url: text('HttpBootUri'),
    };
    machine.setBoot(Object.fromEntries(Object.entries(changes).filter(([, value]) => value !== undefined)));
    return { status: 200, body: {} };
  }
}
