/** What a fake management controller is asked for, and what it says of itself afterwards. */

/** Captured trees of ../shared/vectors/redfish; `minimal` is a small one of our own, and there always. */
export type FakeTree = 'gh200' | 'dell_poweredge_r750' | 'minimal';

export type FakePower = 'On' | 'Off' | 'PoweringOn' | 'PoweringOff';

/** How controllers of the field misbehave; each is switched on by its name. */
export const quirks = [
  /** Reset types only behind @Redfish.ActionInfo. */
  'action-info-only',
  /** No PowerCycle among its reset types. */
  'no-power-cycle',
  /** A reset to the state that holds is refused with 409. */
  'conflict-in-state',
  /** Does what it is asked and answers 409 (M18). */
  'conflict-although-done',
  /** "Chassis Power is on", as some say it (M15). */
  'odd-power-words',
  /** Says no PowerState at all. */
  'no-power-state',
  /** Says neither LastResetTime nor BootProgress. */
  'no-reset-time',
  /** GracefulShutdown is accepted, and nothing happens. */
  'graceful-ignored',
  /** Takes a boot override and forgets it (M27). */
  'override-ignored',
  /** Takes a boot override at the second time. */
  'override-ignored-once',
  /** A boot override belongs into the settings object; the system itself refuses it. */
  'settings-object',
  /** Refuses changes while the firmware starts, for a few requests (M31). */
  'busy-in-post',
  /** Knows HttpBootUri. */
  'http-boot-uri',
  /** PATCH without If-Match: 428 (M63). */
  'etag-required',
  /** PATCH without If-Match: 412. */
  'etag-precondition',
  /** Its tags are weak and it takes none that is (M64). */
  'etag-weak-refused',
  /** Its tags come in doubled quotes (M64). */
  'etag-double-quoted',
  /** No tag is right, none at all is (M64). */
  'etag-never-matches',
  /** Resets are tasks: 202 and a monitor. */
  'tasks',
  /** The monitor is forgotten once the task is done: 404. */
  'tasks-forgotten',
  /** The Location of a 202 is the task and not its monitor. */
  'task-uri',
  /** A password change is demanded: everything else is 403 (M43). */
  'password-change-required',
  /** Answers a password change with 504 although it is done. */
  'password-half-done',
  /** Sessions of the old password live on (M42). */
  'sessions-survive-password',
  /** No sessions at all: 404. */
  'no-sessions',
  /** Advertises no $expand and does not know it. */
  'no-expand',
  /** Answers nothing for good once two requests overlap (M14). */
  'wedges-on-overlap',
  /** 504 with a page of HTML until Manager.Reset (M22). */
  'needs-manager-reset',
  /** The first slot of virtual media has no action: 405 (M66). */
  'media-slot-refuses',
  /** Inserting while the previous eject runs: 503 (M66). */
  'media-busy',
] as const;

export type Quirk = (typeof quirks)[number];

export type Fault =
  /** The connection is cut before anything happens. */
  | { readonly kind: 'cut-before' }
  /** It happens, and the connection is cut before the answer. */
  | { readonly kind: 'cut-after' }
  /** Never answers. */
  | { readonly kind: 'hang' }
  | { readonly kind: 'answer'; readonly status: number; readonly body: string; readonly headers?: Readonly<Record<string, string>> }
  /** It happens, and this is answered instead. */
  | { readonly kind: 'answer-after'; readonly status: number; readonly body: string; readonly headers?: Readonly<Record<string, string>> }
  /** A body of this many bytes; Infinity: until it is cut. */
  | { readonly kind: 'flood'; readonly bytes: number };

export interface FakeRequest {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: unknown;
  /** Answered with; 0 for none. */
  status: number;
}

/** Asked for each request, in order; undefined: it is answered as it should be. */
export type FaultScript = (request: FakeRequest, count: number) => Fault | undefined;

export interface MachineBehaviour {
  /** The power came on or went off. bootTarget: what it boots from; bootUrl: for UefiHttp. */
  onPower?(power: 'On' | 'Off', boot: { readonly target: string; readonly url: string; readonly media: string }): void | Promise<void>;
  /** So many looks at the system show a state of transition before the final one. */
  readonly looksInTransition?: number;
}

export interface FakeBmcOptions {
  readonly tree: FakeTree;
  readonly credential: { readonly username: string; readonly password: string };
  readonly quirks?: readonly Quirk[];
  /** Default: with a self-signed certificate. false: plain HTTP. */
  readonly tls?: boolean;
  readonly script?: FaultScript;
  readonly machine?: MachineBehaviour;
  readonly host?: string;
  readonly port?: number;
  /** Its clock. */
  readonly now?: () => number;
  readonly power?: 'On' | 'Off';
  readonly sessionsMax?: number;
  /** 0: never locks. */
  readonly lockoutThreshold?: number;
  readonly lockoutMs?: number;
  /** Properties of a resource that are other than in the tree: path → what is merged into it. */
  readonly overrides?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
}

export interface FakeBmcState {
  power: FakePower;
  /** What the system was told to boot from. */
  boot: { target: string; enabled: string; mode: string; url: string };
  /** Slot path → image that is inserted. */
  readonly media: Map<string, string>;
  /** The password that holds. */
  password: string;
  lockedUntilMs: number;
  wedged: boolean;
}

export interface FakeEffects {
  /** Resets that did something, in order. */
  readonly resets: readonly string[];
  /** Reset requests that arrived. */
  readonly resetsAsked: readonly string[];
  readonly sessionsOpen: number;
  readonly sessionsOpened: number;
  readonly loginsFailed: number;
  readonly passwordChanges: number;
  readonly managerResets: number;
  readonly overlaps: number;
  /** Media that were inserted or ejected, with the power at that moment. */
  readonly mediaMoves: readonly string[];
}

export interface FakeBmc {
  /** host:port */
  readonly address: string;
  /** Lower-case hex of SHA-256 over its SPKI; empty without TLS. */
  readonly pinSha256: string;
  readonly state: FakeBmcState;
  readonly requests: readonly FakeRequest[];
  readonly effects: FakeEffects;
  /** Another key and certificate from now on. */
  changeCertificate(): void;
  /** Takes no connections, and cuts those it has, until `accept`. */
  refuse(): Promise<void>;
  accept(): Promise<void>;
  close(): Promise<void>;
}
