/**
 * bmc.power: done when the state was observed, never when it was asked for.
 *
 * What was seen before anything was sent is durable (prepare), so that an agent that died in the middle can tell whether the machine was
 * reset meanwhile and never resets it twice (M38). A command that asks again, through another agent, says how the machine was before the
 * first of them, and is taken up in the same way (MT2). A request whose answer was lost is not repeated: the machine is looked at. A
 * refusal is compared with the state: 409 although it is so is a success with a note (M18). Nothing here ever resets the controller
 * itself (M22): that takes a request of its own, with an approval of its own.
 */
import { ControlError, isControlError } from '../../../domain/errors.ts';
import { minute, second } from '../../../domain/time.ts';
import { type EarlierAttempt, site } from '../../../proto/index.ts';
import { type KindContext, type KindEnd, type KindHandler, succeeded } from '../../kinds/handler.ts';
import type { StartNote } from '../../state/journal.ts';
import type { RedfishClient } from '../redfish/client.ts';
import { isRefusal } from '../redfish/refusals.ts';
import type { Resource } from '../redfish/resource.ts';
import { findSystem, type Observation, type ObservedPower, observe, resetActionOf } from '../redfish/system.ts';
import { mayHaveArrived } from '../redfish/transport.ts';
import type { BmcAccess } from './access.ts';
import {
  type Done,
  judgeEarlier,
  judgeTakenUp,
  type PowerVerb,
  planPower,
  powerVerbs,
  type Send,
  showsResets,
  type TakenUp,
  wasReset,
} from './power-plan.ts';
import { wireStates } from './power-states.ts';
import { seenBefore, sightOf } from './sight.ts';

export const powerTimes = Object.freeze({
  lookEveryMs: 2 * second,
  /** Off is believed when it is seen twice in a row. */
  offAgainMs: second,
  changingMs: minute,
  /** A refusal in the middle of a change: six times, ten seconds apart. */
  refusedTries: 6,
  refusedEveryMs: 10 * second,
  /** On, and no word of resets: taken as done after this. */
  silentResetMs: 15 * second,
  /** For the effect of a request that a dead agent may have sent. */
  watchMs: 30 * second,
});

export function powerHandler(access: BmcAccess): KindHandler {
  return {
    prepare: (payload, context) =>
      access.run({ target: payload as site.BmcPower, context }, async (client) => {
        const { system } = await findSystem(client, (payload as site.BmcPower).systemId);
        return { ...observe(system) };
      }),
    run: (payload, context) =>
      runPower(access, { payload: payload as site.BmcPower, context }, (drive) => {
        const { earlier } = context;
        return earlier === undefined ? drive.fromStart() : drive.takeUp(behindEarlier(earlier));
      }),
    recover: (payload, context) =>
      runPower(access, { payload: payload as site.BmcPower, context }, (drive) => {
        const { earlier, note } = context;
        return drive.takeUp(earlier === undefined ? behindDeath(note) : behindEarlier(earlier));
      }),
  };
}

interface Asked {
  readonly payload: site.BmcPower;
  readonly context: Pick<KindContext, 'commandId' | 'signal'>;
}

function runPower(access: BmcAccess, { payload, context }: Asked, how: (drive: PowerDrive) => Promise<KindEnd>): Promise<KindEnd> {
  const verb = powerVerbs[payload.action];
  if (verb === undefined) {
    throw new ControlError('INVALID_INPUT', `there is no power action ${payload.action}`, { details: { reason: 'power-action' } });
  }
  return access.run({ target: payload, context }, async (client) => how(new PowerDrive(client, { verb, systemId: payload.systemId })));
}

const powers: readonly ObservedPower[] = ['on', 'off', 'changing', 'unknown'];

const notedObservation = (note: StartNote): Observation => ({
  power: powers.find((power) => power === note['power']) ?? 'unknown',
  lastReset: note['lastReset'] ?? '',
  bootProgress: note['bootProgress'] ?? '',
});

/** What may have been done already, and how it is told. */
interface Before {
  readonly judge: (verb: PowerVerb, now: Observation) => TakenUp;
  /** Who may have done it, as a sentence goes on. */
  readonly who: string;
}

const behindDeath = (note: StartNote): Before => ({
  judge: (verb, now) => judgeTakenUp(verb, notedObservation(note), now),
  who: 'the agent stopped in the middle',
});

/** Also after a death: what an agent noted here was noted behind the earlier command. */
function behindEarlier(earlier: EarlierAttempt): Before {
  const seen = seenBefore(earlier);
  return { judge: (verb, now) => judgeEarlier(verb, seen, now), who: `${earlier.commandId} asked for the same` };
}

/** One action on one system. */
class PowerDrive {
  readonly #client: RedfishClient;
  readonly #verb: PowerVerb;
  readonly #systemId: string;
  readonly #refused = new Set<string>();
  #sent = '';

  constructor(client: RedfishClient, { verb, systemId }: { verb: PowerVerb; systemId: string }) {
    this.#client = client;
    this.#verb = verb;
    this.#systemId = systemId;
  }

  async fromStart(): Promise<KindEnd> {
    const { system } = await findSystem(this.#client, this.#systemId);
    return this.#drive(this.#verb, system);
  }

  /** Where it may have been done already. */
  async takeUp({ judge, who }: Before): Promise<KindEnd> {
    const { system } = await findSystem(this.#client, this.#systemId);
    const untilMs = this.#client.now() + powerTimes.watchMs;
    for (;;) {
      const now = await this.#settled(system.path);
      switch (judge(this.#verb, now)) {
        case 'done':
          this.#client.note(`${who}, and it was done: nothing was sent`);
          return this.#end(now, { already: true });
        case 'go-on':
          return this.#drive(this.#verb, system);
        case 'turn-on':
          return this.#drive('on', system);
        case 'unproven':
          return {
            kind: 'interrupted',
            message: `${who}, and the controller does not tell whether the machine was reset: it is ${now.power}, and is not reset again`,
          };
        case 'watch':
          if (this.#client.now() >= untilMs) return this.#drive(this.#verb, system);
          await this.#client.sleep(powerTimes.lookEveryMs);
      }
    }
  }

  async #drive(verb: PowerVerb, system: Resource): Promise<KindEnd> {
    const action = await resetActionOf(this.#client, system);
    const takes = (type: string): boolean => (action.allowed === null || action.allowed.includes(type)) && !this.#refused.has(type);
    for (let tries = 1; ; tries += 1) {
      const before = await this.#settled(system.path);
      const step = planPower(verb, before.power, takes);
      switch (step.kind) {
        case 'already':
          return this.#end(before, { already: this.#sent === '' });
        case 'wait':
          throw this.#unseen(`has been on its way between on and off for ${powerTimes.changingMs / second} s`, 'power-changing');
        case 'unsupported':
          throw new ControlError('UNSUPPORTED', `${this.#client.address.key} takes none of ${step.wanted.join(', ')}`, {
            details: { reason: 'reset-type', allowed: action.allowed },
          });
        case 'send': {
          const refusal = await this.#send(action.path, step);
          const after = await this.#awaitDone(system.path, { step, before, refusal });
          if (after !== null) return step.next === null ? this.#end(after, { already: false }) : this.#drive(step.next, system);
          if (refusal === null) return this.#drive(this.#otherwise(step), system);
          await this.#afterRefusal(step, { refusal, tries });
        }
      }
    }
  }

  /** Waits where it may be a matter of time, tries another type where this one is not known. @throws the refusal otherwise */
  async #afterRefusal({ resetType }: Send, { refusal, tries }: { refusal: ControlError; tries: number }): Promise<void> {
    if (tries >= powerTimes.refusedTries) throw refusal;
    if (isRefusal(refusal, 'bmc-parameter')) {
      this.#refused.add(resetType);
      return this.#client.note(`the controller does not know ${resetType}: ${refusal.message}`);
    }
    if (!isRefusal(refusal, 'bmc-conflict', 'bmc-in-post', 'bmc-busy', 'bmc-unavailable')) throw refusal;
    await this.#client.sleep(powerTimes.refusedEveryMs);
  }

  /** @returns the refusal, where there was one */
  async #send(path: string, { resetType }: Send): Promise<ControlError | null> {
    this.#sent = resetType;
    try {
      await this.#client.post(path, { ResetType: resetType });
      return null;
    } catch (error) {
      if (!isControlError(error) || this.#client.signal.aborted) throw error;
      if (error.details['reason'] === 'bmc-unreachable' && mayHaveArrived(error)) {
        this.#client.note(`the answer to ${resetType} was lost: the machine was looked at, nothing was sent again`);
        return null;
      }
      if (!judgedByState.has(error.code)) throw error;
      return error;
    }
  }

  /** null: it was not seen in time. A refusal is given one look: it may be so already. */
  async #awaitDone(
    path: string,
    { step, before, refusal }: { step: Send; before: Observation; refusal: ControlError | null },
  ): Promise<Observation | null> {
    const sinceMs = this.#client.now();
    let wasElsewhere = false;
    for (;;) {
      const now = await this.#look(path);
      wasElsewhere ||= now.power === 'off' || now.power === 'changing';
      if (isDone(step.done, { before, now, wasElsewhere })) {
        if (refusal !== null)
          this.#client.note(`the controller refused ${step.resetType}, and the machine is as it was asked for: ${refusal.message}`);
        return now;
      }
      if (refusal !== null) return null;
      const spentMs = this.#client.now() - sinceMs;
      if (step.done === 'moved' && now.power === 'on' && !showsResets(now) && spentMs >= powerTimes.silentResetMs) {
        this.#client.note('the controller tells neither when the machine was reset nor how it boots: its answer alone says that it was');
        return now;
      }
      if (spentMs >= step.waitMs) return null;
      await this.#client.sleep(powerTimes.lookEveryMs);
    }
  }

  /** One look; off only when a second one says so too. */
  async #look(path: string): Promise<Observation> {
    const first = observe(await this.#client.get(path));
    if (first.power !== 'off') return first;
    await this.#client.sleep(powerTimes.offAgainMs);
    return observe(await this.#client.get(path));
  }

  /** Waits while the machine is on its way. */
  async #settled(path: string): Promise<Observation> {
    const untilMs = this.#client.now() + powerTimes.changingMs;
    for (;;) {
      const now = await this.#look(path);
      if (now.power !== 'changing' || this.#client.now() >= untilMs) return now;
      await this.#client.sleep(powerTimes.lookEveryMs);
    }
  }

  #otherwise({ resetType, otherwise, done, waitMs }: Send): PowerVerb {
    if (otherwise === null) throw this.#unseen(`answered ${resetType}, and after ${waitMs / second} s ${goals[done]}`, 'power-unchanged');
    this.#client.note(`${resetType} was not followed in ${waitMs / second} s: turned off`);
    return otherwise;
  }

  #unseen(what: string, reason: string): ControlError {
    return new ControlError('UNAVAILABLE', `${this.#client.address.key} ${what}`, { details: { reason } });
  }

  #end(seen: Observation, { already }: { already: boolean }): KindEnd {
    const observedAtMs = BigInt(Math.round(this.#client.now()));
    const notes = [...this.#client.notes];
    return succeeded(site.BmcPowerResultSchema, {
      state: wireStates[seen.power],
      already,
      resetType: already ? '' : this.#sent,
      observedAtMs,
      notes,
      seen: sightOf(seen),
    });
  }
}

const goals: Readonly<Record<Done, string>> = Object.freeze({
  on: 'the machine was not seen on',
  off: 'the machine was not seen off',
  moved: 'the machine was not seen to start again',
});

/** Refusals that may only mean that it is so already, or not yet. */
const judgedByState = new Set<string>(['INVALID_STATE', 'NOT_YET', 'UNSUPPORTED', 'CONFLICT', 'UNAVAILABLE', 'RATE_LIMITED']);

function isDone(done: Done, { before, now, wasElsewhere }: { before: Observation; now: Observation; wasElsewhere: boolean }): boolean {
  if (done !== 'moved') return now.power === done;
  return now.power === 'on' && (wasReset(before, now) || (wasElsewhere && before.power === 'on'));
}
