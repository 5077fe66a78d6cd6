/** The life of a command in a node's log: one table of states and the moves between them. */
export const commandStates = Object.freeze({
  open: 0,
  acked: 1,
  done: 2,
  failed: 3,
  expired: 4,
  cancelled: 5,
  rejected: 6,
  interrupted: 7,
} as const);

export type CommandState = keyof typeof commandStates;
export type CommandStateNumber = (typeof commandStates)[CommandState];

const names = Object.freeze(Object.keys(commandStates) as CommandState[]);

/** undefined for a number that is no state. */
export const commandStateName = (value: number): CommandState | undefined => names[value];

/** A finished command never changes again: the first end wins. */
export const isFinished = (state: CommandState): boolean => commandStates[state] >= commandStates.done;
