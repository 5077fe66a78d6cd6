/** Numbers of TPM 2.0 that are taken here (TPM library specification, part 2, and the TCG algorithm registry). */

export const algorithms = Object.freeze({
  rsa: 0x0001,
  aes: 0x0006,
  sha256: 0x000b,
  null: 0x0010,
  rsassa: 0x0014,
  ecdsa: 0x0018,
  ecc: 0x0023,
  cfb: 0x0043,
});

export const curveP256 = 0x0003;

/** TPMA_OBJECT. */
export const attributes = Object.freeze({
  fixedTPM: 1 << 1,
  fixedParent: 1 << 4,
  sensitiveDataOrigin: 1 << 5,
  restricted: 1 << 16,
  decrypt: 1 << 17,
  sign: 1 << 18,
});

export type Attribute = keyof typeof attributes;
