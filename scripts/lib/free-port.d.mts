export interface PortClaim {
  readonly host?: string;
  /** 0: a free one. */
  readonly port: number;
  readonly who: string;
  readonly setBy: string;
}
export const freeChoice: { readonly from: number; readonly to: number };
export function claimPort(request: PortClaim): Promise<number>;
export function isPortFree(port: number, host?: string): Promise<boolean>;
