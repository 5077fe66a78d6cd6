/** The part of the metadata reflection API that @peculiar/x509's container looks for when it is loaded. Import it first. */
type Store = Map<unknown, unknown>;

const stores = new WeakMap<object, Store>();

const own = (key: unknown, target: object): unknown => stores.get(target)?.get(key);

const inherited = (key: unknown, target: object): unknown => {
  for (let at: object | null = target; at !== null; at = Object.getPrototypeOf(at)) {
    const found = own(key, at);
    if (found !== undefined) return found;
  }
  return undefined;
};

const define = (key: unknown, value: unknown, target: object): void => {
  stores.set(target, (stores.get(target) ?? new Map()).set(key, value));
};

Object.assign(Reflect, {
  defineMetadata: define,
  getMetadata: inherited,
  getOwnMetadata: own,
  hasOwnMetadata: (key: unknown, target: object) => own(key, target) !== undefined,
  metadata: (key: unknown, value: unknown) => (target: object) => define(key, value, target),
});
