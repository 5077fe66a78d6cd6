/** Channels on which statements say what they have changed, with the commit that changes it. */

/** There are completions to deliver. No payload. */
export const completionChannel = 'bc_completions';

/** Something that the run with this id may wait for: its machine has a session, or a command of its machine's own failed. */
export const runChannel = 'bc_runs';
