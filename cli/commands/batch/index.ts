/** `better-compute batch …`: the approvers' side of a batch. Keys stay on the approver's machine; the control plane is not believed. */
import type { Command } from 'commander';
import { findGroup } from '../../command.ts';
import type { CliIo } from '../../io.ts';
import { createPorts, type Ports } from '../../ports.ts';
import { batchApproveRun, newBatchApprove } from './approve.ts';
import { batchCancelRun, newBatchCancel } from './cancel.ts';
import { batchCreateRun, newBatchCreate } from './create.ts';
import { batchKeygenRun, newBatchKeygen } from './keygen.ts';
import { batchListRun, newBatchList } from './list.ts';
import { batchShowRun, newBatchShow } from './show.ts';
import { batchSignRun, newBatchSign } from './sign.ts';
import { batchSignApproversRun, newBatchSignApprovers } from './sign-approvers.ts';
import { batchSignOverrideRun, newBatchSignOverride } from './sign-override.ts';
import { batchSubmitRun, newBatchSubmit } from './submit.ts';

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  findGroup(program, 'batch', 'Destructive work: ask for it, review it, approve it with your own key')
    .addCommand(newBatchKeygen((options) => batchKeygenRun(options, ports)))
    .addCommand(newBatchList((options) => batchListRun(options, ports)))
    .addCommand(newBatchShow((options) => batchShowRun(options, ports)))
    .addCommand(newBatchApprove((options) => batchApproveRun(options, ports)))
    .addCommand(newBatchSign((options) => batchSignRun(options, ports)))
    .addCommand(newBatchSubmit((options) => batchSubmitRun(options, ports)))
    .addCommand(newBatchSignApprovers((options) => batchSignApproversRun(options, ports)))
    .addCommand(newBatchSignOverride((options) => batchSignOverrideRun(options, ports)))
    .addCommand(newBatchCreate((options) => batchCreateRun(options, ports)))
    .addCommand(newBatchCancel(ports, (options) => batchCancelRun(options, ports)));
}
