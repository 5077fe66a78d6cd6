/** The machine behind a fake controller: its power, what it boots from, its media; and the effects that were had on it. */
import type { FakeBmcOptions, FakeBmcState, FakePower, Quirk } from './types.ts';

export const allResetTypes = ['On', 'ForceOff', 'ForceRestart', 'GracefulRestart', 'GracefulShutdown', 'PowerCycle'] as const;

export class FakeMachine {
  readonly state: FakeBmcState;
  readonly resets: string[] = [];
  readonly resetsAsked: string[] = [];
  readonly mediaMoves: string[] = [];
  lastResetMs: number;
  bootCount = 0;
  readonly #options: FakeBmcOptions;
  readonly #now: () => number;
  /** What the next looks show before the state itself. */
  #shown: FakePower[] = [];
  #ignoredOverrides = 0;

  constructor(options: FakeBmcOptions, now: () => number) {
    this.#options = options;
    this.#now = now;
    this.lastResetMs = now() - 3_600_000;
    this.state = {
      power: options.power ?? 'On',
      boot: { target: 'None', enabled: 'Disabled', mode: 'UEFI', url: '' },
      media: new Map(),
      password: options.credential.password,
      lockedUntilMs: 0,
      wedged: false,
    };
  }

  has(quirk: Quirk): boolean {
    return this.#options.quirks?.includes(quirk) ?? false;
  }

  /** What the system shows; a look brings the end of a transition nearer. */
  shows(isLook: boolean): FakePower {
    return (isLook ? this.#shown.shift() : this.#shown[0]) ?? this.state.power;
  }

  /** @returns whether anything was done */
  async reset(type: string): Promise<boolean> {
    const isOn = this.state.power === 'On';
    const goal = goals[type];
    if (goal === undefined || (goal === 'restart' && !isOn)) return false;
    if (type === 'GracefulShutdown' && this.has('graceful-ignored')) return true;
    if (goal !== 'restart' && (goal === 'On') === isOn) return false;
    this.resets.push(type);
    const looks = this.#options.machine?.looksInTransition ?? 0;
    if (goal !== 'On') await this.#goOff(looks);
    if (goal !== 'Off') await this.#comeOn(looks);
    return true;
  }

  setBoot(boot: Partial<FakeBmcState['boot']>): void {
    if (this.has('override-ignored')) return;
    if (this.has('override-ignored-once') && this.#ignoredOverrides++ === 0) return;
    Object.assign(this.state.boot, boot);
    if (this.state.boot.enabled === 'Disabled') this.state.boot.target = 'None';
  }

  moveMedia(slot: string, image: string | null): void {
    this.mediaMoves.push(`${image === null ? 'eject' : 'insert'} ${slot.split('/').at(-1)} (${this.state.power})`);
    if (image === null) this.state.media.delete(slot);
    else this.state.media.set(slot, image);
  }

  async #goOff(looks: number): Promise<void> {
    this.state.power = 'Off';
    this.#shown = Array.from({ length: looks }, () => 'PoweringOff' as const);
    await this.#options.machine?.onPower?.('Off', { target: 'None', url: '', media: '' });
  }

  async #comeOn(looks: number): Promise<void> {
    const { boot } = this.state;
    this.state.power = 'On';
    this.#shown.push(...Array.from({ length: looks }, () => 'PoweringOn' as const));
    this.bootCount += 1;
    // A second apart at least: its clock has no finer ones.
    this.lastResetMs = Math.max(this.#now(), this.lastResetMs + 1000);
    const target = boot.enabled === 'Disabled' ? 'None' : boot.target;
    const media = [...this.state.media.values()][0] ?? '';
    const { url } = boot;
    if (boot.enabled === 'Once') this.state.boot = { ...boot, enabled: 'Disabled', target: 'None' };
    await this.#options.machine?.onPower?.('On', { target, url, media });
  }
}

const goals: Readonly<Record<string, 'On' | 'Off' | 'restart'>> = Object.freeze({
  On: 'On',
  ForceOn: 'On',
  ForceOff: 'Off',
  GracefulShutdown: 'Off',
  ForceRestart: 'restart',
  GracefulRestart: 'restart',
  PowerCycle: 'restart',
});
