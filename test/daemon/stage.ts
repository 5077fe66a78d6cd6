/** A deployment, gateways that do what a test says, and daemons over memory; everything that was started is stopped after each test. */
import { backoffLimits } from '../../daemon/transport/backoff.ts';
import { type Member, type MemberOptions, startMember } from '../fakes/fleet.ts';
import { createDeployment, joinedNode, type NodeInit, type TestDeployment } from '../harness/deployment.ts';
import { type FakeGateway, type FakeGatewayOptions, startFakeGateway } from '../harness/fake-gateway.ts';

export interface Stage {
  readonly deployment: TestDeployment;
  /** Stopped after the test, the last first. */
  readonly running: { stop(): Promise<unknown> }[];
  gatewayWith(options?: Partial<FakeGatewayOptions>): Promise<FakeGateway>;
  daemonAt(gatewayUrl: string, options?: Partial<MemberOptions> & { node?: Partial<NodeInit> }): Promise<Member>;
}

/** Redials within milliseconds. */
export const quickBackoff = Object.freeze({ ...backoffLimits, baseMs: 5, capMs: 20, heldMs: 0 });

/** Called inside a `describe`; the deployment exists from `before` on. */
export function setStage(): Stage {
  const running: Stage['running'] = [];
  let deployment: TestDeployment | undefined;
  before(async () => {
    deployment = await createDeployment();
  });
  afterEach(async () => {
    for (const one of running.splice(0).toReversed()) await one.stop();
  });
  const stage: Stage = {
    running,
    get deployment() {
      if (deployment === undefined) throw new Error('the stage is set in before()');
      return deployment;
    },
    async gatewayWith(options = {}) {
      const gateway = await startFakeGateway({ deployment: stage.deployment, ...options });
      running.push({ stop: () => gateway.close() });
      return gateway;
    },
    async daemonAt(gatewayUrl, { node, ...options } = {}) {
      const identity = await joinedNode(stage.deployment, { gatewayUrl, ...node });
      const member = startMember({ identity, limits: quickBackoff, ...options });
      running.push(member);
      return member;
    },
  };
  return stage;
}
