/** What a reimage of a fleet remembers, and its two rules: who may be begun next, and when nobody is. Pure, without Temporal. */

import { isRecord, type Signed } from '../shared/shape.ts';
import type { FleetMachineEnd, FleetResult, FleetStatus, ParsedReimageFleet } from './messages.ts';

export interface Place {
  readonly machineId: string;
  readonly rack: string;
  readonly siteId: string;
}

/** Of the runs before this one: counts, and what holds it. */
export interface Carried {
  readonly total: number;
  readonly done: number;
  readonly failed: number;
  readonly cancelled: number;
  /** Failures that an operator has lifted. */
  readonly forgiven: number;
  readonly failures: readonly FleetMachineEnd[];
  readonly paused: FleetStatus['paused'];
}

const failuresKept = 20;
/** A share of a few is no share. */
const shareFrom = 10;

export class FleetRun {
  readonly input: ParsedReimageFleet;
  readonly since: number;
  readonly total: number;
  /** Not begun yet, in their order. */
  readonly waiting: string[];
  readonly inWork = new Map<string, Place>();
  readonly places = new Map<string, Place>();
  done: number;
  failed: number;
  cancelled: number;
  forgiven: number;
  failures: FleetMachineEnd[];
  paused: FleetStatus['paused'];
  phase: FleetStatus['phase'] = 'planning';
  stopping: (Signed & { readonly running: boolean }) | null = null;
  givenUp = false;

  constructor(input: ParsedReimageFleet, now: number) {
    const { total, done, failed, cancelled, forgiven, failures, paused } = readCarried(input.carried) ?? noneBefore(input);
    this.input = input;
    this.since = now;
    this.waiting = [...input.machines];
    this.total = total;
    this.done = done;
    this.failed = failed;
    this.cancelled = cancelled;
    this.forgiven = forgiven;
    this.failures = [...failures];
    this.paused = paused;
  }

  /** Why no further machine is begun; empty while there may be. */
  get stopped(): string {
    if (this.stopping !== null) return `cancelled by ${this.stopping.actor}: ${this.stopping.reason}`;
    const { maxFailures, maxFailurePercent } = this.input.stop;
    const counted = this.failed - this.forgiven;
    if (counted > maxFailures) return `${counted} machines failed, ${maxFailures} are tolerated`;
    const ended = this.done + this.failed;
    const percent = ended === 0 ? 0 : (100 * counted) / ended;
    if (ended < shareFrom || percent <= maxFailurePercent) return '';
    return `${Math.round(percent)} % of ${ended} machines failed, ${maxFailurePercent} % are tolerated`;
  }

  /** The next that its rack, its site and the whole leave room for; undefined: none now. */
  next(): string | undefined {
    if (this.stopped !== '' || this.paused !== null) return undefined;
    const { limits } = this.input;
    if (this.inWork.size >= limits.total) return undefined;
    const racks = countBy(this.inWork.values(), rackOf);
    const sites = countBy(this.inWork.values(), ({ siteId }) => siteId);
    return this.waiting.find((id) => {
      const place = this.placeOf(id);
      return (racks.get(rackOf(place)) ?? 0) < limits.perRack && (sites.get(place.siteId) ?? 0) < limits.perSite;
    });
  }

  /** One whose place is not known counts with all the others of which it is not. */
  placeOf = (machineId: string): Place => this.places.get(machineId) ?? { machineId, rack: '', siteId: '' };

  begin(machineId: string): void {
    this.waiting.splice(this.waiting.indexOf(machineId), 1);
    this.inWork.set(machineId, this.placeOf(machineId));
  }

  ended(end: FleetMachineEnd): void {
    this.inWork.delete(end.machineId);
    if (end.end === 'done') this.done += 1;
    else if (end.end === 'cancelled') this.cancelled += 1;
    else this.failed += 1;
    if (end.end !== 'done') this.failures = [...this.failures, end].slice(-failuresKept);
  }

  carry(): Carried {
    const { total, done, failed, cancelled, forgiven, failures, paused } = this;
    return { total, done, failed, cancelled, forgiven, failures, paused };
  }

  status(): FleetStatus {
    const { input, phase, since, total, waiting, inWork, done, failed, cancelled, failures, paused, stopped } = this;
    return {
      run: input.run,
      phase,
      since,
      total,
      waiting: waiting.length,
      inWork: [...inWork.values()].map(({ machineId, rack, siteId }) => ({ machineId, rack, site: siteId })),
      done,
      failed,
      cancelled,
      failures,
      paused,
      stopped,
      limits: input.limits,
      stop: input.stop,
      startedBy: input.actor,
      reason: input.reason,
    };
  }

  result(): FleetResult {
    const { input, total, done, failed, cancelled, failures, waiting, stopped, stopping } = this;
    const outcome = stopping !== null ? 'cancelled' : stopped !== '' && waiting.length > 0 ? 'stopped' : 'done';
    return { run: input.run, outcome, total, done, failed, cancelled, notBegun: waiting.length, failures, stopped };
  }

  describe(): string {
    const { phase, total, waiting, inWork, done, failed, cancelled, stopped, paused, input } = this;
    return [
      `**${phase}**: ${done} of ${total} reimaged, ${inWork.size} in work, ${waiting.length} to come, ${failed} failed, ${cancelled} cancelled`,
      ...(paused === null ? [] : [`- **paused** by ${paused.actor}`]),
      ...(stopped === '' ? [] : [`- **no further machine is begun**: ${stopped}`]),
      ...[...inWork.keys()].slice(0, 10).map((id) => `- in work: \`better-compute machine show ${id} --timeline\``),
      ...this.failures.slice(-5).map(({ machineId, end, failure }) => `- ${end}: ${machineId}${failure === '' ? '' : ` (${failure})`}`),
      `- limits: ${input.limits.total} at once, ${input.limits.perRack} a rack, ${input.limits.perSite} a site`,
    ].join('\n');
  }
}

/** A rack's name is its site's own. */
const rackOf = ({ siteId, rack }: Place): string => `${siteId}/${rack}`;

function countBy(places: Iterable<Place>, keyOf: (place: Place) => string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const place of places) counts.set(keyOf(place), (counts.get(keyOf(place)) ?? 0) + 1);
  return counts;
}

const noneBefore = ({ machines }: ParsedReimageFleet): Carried => ({
  total: machines.length,
  done: 0,
  failed: 0,
  cancelled: 0,
  forgiven: 0,
  failures: [],
  paused: null,
});

const counted = ['total', 'done', 'failed', 'cancelled', 'forgiven'] as const;

/** From the run before; anything else is as good as none. */
function readCarried(value: unknown): Carried | null {
  if (!isRecord(value) || counted.some((name) => !Number.isSafeInteger(value[name]) || (value[name] as number) < 0)) return null;
  const { failures, paused } = value;
  return {
    ...(value as unknown as Carried),
    failures: Array.isArray(failures) ? failures : [],
    paused: isRecord(paused) ? (paused as unknown as Carried['paused']) : null,
  };
}
