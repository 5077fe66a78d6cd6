/** How a batch that an agent asked for is announced, in the same words everywhere: to approvers, in the console, over the api (BATCLI-036). */
export interface Proposal {
  readonly agent: string;
  /** The person it acts for. */
  readonly person: string;
  readonly delegationId: string;
}

export const proposedByText = ({ agent, person, delegationId }: Proposal): string =>
  `Proposed by agent ${agent} for ${person} (delegation ${delegationId}): the reason is the agent's own text`;
