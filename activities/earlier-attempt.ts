/**
 * What a command that asks again says of the one that asked first (MT2): how the machine was before it, as an agent told in the last
 * answer before. Between that answer and the first attempt the run sent the machine nothing that resets it, so that a reset which is not
 * of that sight came of an attempt; who gets the command compares, and neither clocks nor distances play a part.
 */
import { create } from '@bufbuild/protobuf';
import { anyPack } from '@bufbuild/protobuf/wkt';
import type { ActName } from '../domain/metal/acts.ts';
import { site } from '../proto/index.ts';
import type { EarlierAttempt } from '../services/command-body.ts';
import type { AnswersPort, CommandAnswer } from './metal-ports.ts';
import { decoded } from './metal-seen.ts';

interface Attempts {
  readonly answers: AnswersPort;
  readonly idOf: (act: ActName, n: number) => string;
  /** The first attempt of the power action. */
  readonly first: number;
}

export async function earlierAttempt(attempts: Attempts): Promise<EarlierAttempt> {
  const before = [...(await told(attempts, 'set-boot')), ...(await told(attempts, 'power', attempts.first))];
  const last = before.toSorted((a, b) => b.createdAt - a.createdAt)[0];
  const seen = last === undefined ? undefined : sightIn(last);
  return {
    commandId: attempts.idOf('power', attempts.first),
    seen: seen === undefined ? null : anyPack(site.SystemSightSchema, create(site.SystemSightSchema, seen)),
  };
}

/** The run's answers to an act, those before a number: numbers are given without a gap. */
async function told({ answers, idOf }: Attempts, act: 'set-boot' | 'power', until = Number.POSITIVE_INFINITY): Promise<CommandAnswer[]> {
  const found: CommandAnswer[] = [];
  for (let n = 1; n < until; n += 1) {
    const answer = await answers.find(idOf(act, n));
    if (answer === undefined) break;
    if (answer.state === 'done') found.push(answer);
  }
  return found;
}

/** undefined: of an agent that did not tell yet. */
const sightIn = ({ kind, result }: CommandAnswer): site.SystemSight | undefined =>
  result === null ? undefined : decoded(kind === 'bmc.boot' ? site.BmcBootResultSchema : site.BmcPowerResultSchema, result).seen;
