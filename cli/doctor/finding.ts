/** What doctor says: one finding a fact, with what to do about it. */
export type Severity = 'error' | 'warning' | 'info' | 'ok';

export interface Finding {
  /** Stable, `<area>.<what>`: scripts look for it. */
  readonly id: string;
  readonly severity: Severity;
  readonly message: string;
  /** Empty when there is nothing to do. */
  readonly fix: string;
}

export const error = (id: string, message: string, fix: string): Finding => ({ id, severity: 'error', message, fix });
export const warning = (id: string, message: string, fix: string): Finding => ({ id, severity: 'warning', message, fix });
export const info = (id: string, message: string, fix = ''): Finding => ({ id, severity: 'info', message, fix });
export const ok = (id: string, message: string): Finding => ({ id, severity: 'ok', message, fix: '' });

export const messageOf = (cause: unknown): string => (cause instanceof Error && cause.message !== '' ? cause.message : String(cause));
