/** Every object identifier this part reads or writes. */
export const oids = Object.freeze({
  ecPublicKey: '1.2.840.10045.2.1',
  prime256v1: '1.2.840.10045.3.1.7',
  ecdsaWithSha256: '1.2.840.10045.4.3.2',
  commonName: '2.5.4.3',
  organization: '2.5.4.10',
  organizationalUnit: '2.5.4.11',
  subjectKeyIdentifier: '2.5.29.14',
  keyUsage: '2.5.29.15',
  subjectAltName: '2.5.29.17',
  basicConstraints: '2.5.29.19',
  nameConstraints: '2.5.29.30',
  authorityKeyIdentifier: '2.5.29.35',
  extKeyUsage: '2.5.29.37',
  serverAuth: '1.3.6.1.5.5.7.3.1',
  clientAuth: '1.3.6.1.5.5.7.3.2',
  /**
   * The role extension of certificates made before the role moved into the subject (ID-028): a UUID arc that Go cannot
   * parse, which is why it went. Read only, never written (ID-027). REMOVE with the first release after 0.1, together
   * with its row in the table of extensions.
   */
  formerRole: '2.25.177492036981354109826034751998403154917',
} as const);
