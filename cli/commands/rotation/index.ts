/** `better-compute rotation …`: each verb is a parser (newX) and a run (xRun) with its ports as an argument. */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { newRotationEvidence, rotationEvidenceRun } from './evidence.ts';
import { newRotationList, rotationListRun } from './list.ts';
import {
  newRotationAbort,
  newRotationExclude,
  newRotationForce,
  newRotationPause,
  newRotationResume,
  rotationAbortRun,
  rotationExcludeRun,
  rotationForceRun,
  rotationPauseRun,
  rotationResumeRun,
} from './override.ts';
import { newRotationStart, rotationStartRun } from './start.ts';
import { newRotationStatus, rotationStatusRun } from './status.ts';
import { newRotationVerify, rotationVerifyRun } from './verify.ts';
import { newRotationWatch, rotationWatchRun } from './watch.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'rotation', 'Rotate the command-signing root and the other keys, watch it, decide what a gate cannot')
    .addCommand(newRotationStart(ports, (options) => rotationStartRun(options, ports)))
    .addCommand(newRotationList((options) => rotationListRun(options, ports)))
    .addCommand(newRotationStatus((options) => rotationStatusRun(options, ports)))
    .addCommand(newRotationWatch((options) => rotationWatchRun(options, ports)))
    .addCommand(newRotationPause(ports, (options) => rotationPauseRun(options, ports)))
    .addCommand(newRotationResume(ports, (options) => rotationResumeRun(options, ports)))
    .addCommand(newRotationForce(ports, (options) => rotationForceRun(options, ports)))
    .addCommand(newRotationExclude(ports, (options) => rotationExcludeRun(options, ports)))
    .addCommand(newRotationAbort(ports, (options) => rotationAbortRun(options, ports)))
    .addCommand(newRotationEvidence((options) => rotationEvidenceRun(options, ports)))
    .addCommand(newRotationVerify((options) => rotationVerifyRun(options, ports)));
}
