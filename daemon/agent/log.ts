/** What the agent needs of a log; pino's has it. */
type Write = (facts: Record<string, unknown>, message: string) => void;

export interface AgentLog {
  debug: Write;
  info: Write;
  warn: Write;
  error: Write;
}
