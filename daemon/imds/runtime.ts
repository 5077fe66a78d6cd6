/** What runs instances on this machine, as the metadata service needs it: who holds an address now. */
export interface RunningInstance {
  /** As the control plane names it. */
  readonly instanceId: string;
}

export interface InstanceRuntime {
  /**
   * The instance that runs and holds this address; null: none does.
   *
   * @param address as canonicalAddress writes it
   * @throws when the runtime cannot be asked: then nobody is served
   */
  findByAddress(address: string): Promise<RunningInstance | null>;
}
