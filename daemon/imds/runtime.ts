/** What runs instances on this machine, as bcd needs it: who holds an address now, and what of the machine they hold. */
export interface RunningInstance {
  /** As the control plane names it: also its allocation's id. */
  readonly instanceId: string;
  /** Of the reservation that it holds a part of this machine by; null: of none. */
  readonly reservationId: string | null;
}

export interface InstanceRuntime {
  /**
   * The instance that runs and holds this address; null: none does.
   *
   * @param address as canonicalAddress writes it
   * @throws when the runtime cannot be asked: then nobody is served
   */
  findByAddress(address: string): Promise<RunningInstance | null>;
  /** All that run now. @throws likewise */
  listRunning(): Promise<readonly RunningInstance[]>;
}
