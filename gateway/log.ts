/** The part of a pino logger the gateway uses, so that tests need no log. */
export interface GatewayLog {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

const nothing = (): void => undefined;

export const noLog: GatewayLog = Object.freeze({ debug: nothing, info: nothing, warn: nothing, error: nothing });
