/**
 * Every environment name of this system, with what sets it apart. One table, so that a misspelt name is refused by every
 * process with the nearest known one, whichever process would have read it.
 */
export interface EnvName {
  readonly summary: string;
  /** The value never appears in a message, a log line or `doctor`. */
  readonly secret?: true;
}

export const envNames: Readonly<Record<string, EnvName>> = Object.freeze({
  BETTER_COMPUTE_HOME: { summary: 'state folder (default .better-compute)' },
  BETTER_COMPUTE_SECRET: { summary: 'unseals the key bundle', secret: true },
  BETTER_COMPUTE_PKI: { summary: 'key bundle: path of pki.json, or "database"' },
  BETTER_COMPUTE_PKI_ALLOW_UNAUTHENTICATED: { summary: '1: accept a key bundle whose seal does not cover its public half' },
  BETTER_COMPUTE_PKCS11_MODULE: { summary: 'library of the PKCS #11 token that keeps keys of pkcs11: references' },
  BETTER_COMPUTE_PKCS11_PIN_FILE: { summary: 'file with the user PIN of that token' },
  BETTER_COMPUTE_SIGNER_COMMAND: { summary: 'program that keeps the keys of external: references' },
  BETTER_COMPUTE_SIGNER_TIMEOUT_MS: { summary: 'how long a signer outside of the bundle is waited for (default 10000)' },
  BETTER_COMPUTE_CODEC_KEY: { summary: 'key of the payload codec, base64', secret: true },
  BETTER_COMPUTE_CODEC: { summary: 'payload codec: on or off' },
  BETTER_COMPUTE_CODEC_ENDPOINT: { summary: 'on: the api decodes payloads for the Temporal UI and CLI' },
  BETTER_COMPUTE_CODEC_ACCESS: { summary: 'who may ask the codec endpoint: bearer (the operator token) or loopback (this host)' },
  BETTER_COMPUTE_CODEC_ORIGINS: { summary: 'origins of Temporal UIs that may ask the codec endpoint, comma-separated' },
  BETTER_COMPUTE_TICKET_ISSUER: {
    summary: "origin of the api's own address, which exec tickets are issued by; without it there are no tunnels",
  },
  BETTER_COMPUTE_WORKLOAD_ISSUER: { summary: 'https address of the workload token issuer; without it no tokens are issued' },
  BETTER_COMPUTE_WORKLOAD_AUDIENCE: { summary: 'audience of a workload token whose request names none (default: the issuer)' },
  BETTER_COMPUTE_WORKLOAD_AUDIENCES: { summary: 'further audiences that a request may name, comma-separated' },
  BETTER_COMPUTE_VAULT_URL: { summary: 'Vault or OpenBao that vault:// references are read from' },
  BETTER_COMPUTE_VAULT_TOKEN_FILE: { summary: 'file with the token for it' },
  BETTER_COMPUTE_VAULT_NAMESPACE: { summary: 'its namespace, where it has several' },
  BETTER_COMPUTE_SECRET_ENV: { summary: "variables of the api's environment that env:// references may name, comma-separated" },
  BETTER_COMPUTE_JOIN_APPROVAL: {
    summary:
      "attestors by which a machine waits for an operator's word before it joins, comma-separated (better-compute joins); default: none",
  },
  BETTER_COMPUTE_TPM_INVENTORY: { summary: 'CSV of the endorsement keys whose machines may join by their TPM; without it none may' },
  BETTER_COMPUTE_TPM_ROOTS: { summary: 'PEM file of TPM manufacturers: an endorsement key then also needs a certificate of theirs' },
  BETTER_COMPUTE_DATABASE_URL: { summary: 'PostgreSQL; without it start runs an embedded one', secret: true },
  BETTER_COMPUTE_API_HOST: { summary: 'address the operator API listens on' },
  BETTER_COMPUTE_API_PORT: { summary: 'port of the operator API' },
  BETTER_COMPUTE_API_URL: { summary: 'where the CLI finds the operator API' },
  BETTER_COMPUTE_INTERNAL_HOST: { summary: "address of the api's internal listener" },
  BETTER_COMPUTE_INTERNAL_PORT: { summary: "port of the api's internal listener" },
  BETTER_COMPUTE_INTERNAL_URL: { summary: "where a gateway finds the api's internal listener" },
  BETTER_COMPUTE_GATEWAY_HOST: { summary: 'address the gateway listens on' },
  BETTER_COMPUTE_GATEWAY_PORT: { summary: 'port of the gateway' },
  BETTER_COMPUTE_GATEWAY_WEBSOCKET_PORT: { summary: 'port of the WebSocket listener of the gateway; none without' },
  BETTER_COMPUTE_GATEWAY_ID: { summary: 'name of this gateway' },
  BETTER_COMPUTE_GATEWAY_NAME: { summary: 'server name in the gateway certificate' },
  BETTER_COMPUTE_GATEWAY_URL: { summary: 'address daemons are told to join' },
  BETTER_COMPUTE_GATEWAY_REGION: { summary: 'region this gateway reports' },
  BETTER_COMPUTE_METRICS_HOST: { summary: 'address of /healthz, /readyz and /metrics' },
  BETTER_COMPUTE_METRICS_PORT: { summary: 'port of /healthz, /readyz and /metrics' },
  BETTER_COMPUTE_POSTGRES_PORT: { summary: 'port of the embedded PostgreSQL' },
  BETTER_COMPUTE_TEMPORAL_PORT: { summary: 'port of the local Temporal server' },
  BETTER_COMPUTE_TEMPORAL_UI_PORT: { summary: 'port of the local Temporal UI' },
  BETTER_COMPUTE_HOST_CREDENTIALS: {
    summary:
      'folder of private keys and passwords by which machines are enrolled over SSH (file:// references); read by the hosts worker alone',
  },
  BETTER_COMPUTE_HOST_BCD: { summary: 'program of bcd that machines get which are enrolled over SSH' },
  BETTER_COMPUTE_HOST_PROGRAM: { summary: 'place of bcd on those machines (default /usr/local/bin/bcd)' },
  BETTER_COMPUTE_HOST_DATA: { summary: 'its data folder there (default /var/lib/better-compute/bcd)' },
  BETTER_COMPUTE_HOST_CONFIG: { summary: 'folder of pins.json there (default /etc/better-compute)' },
  BETTER_COMPUTE_HOST_UNITS: { summary: 'folder of systemd units there (default /etc/systemd/system)' },
  BETTER_COMPUTE_HOST_WEBSOCKET_URL: { summary: 'wss URL by which those machines reach the gateway, where a proxy takes TLS apart' },
  BETTER_COMPUTE_HOST_APPROVER_SET_SHA256: { summary: 'the only first approver set that those machines take' },
  BETTER_COMPUTE_HOST_MODULE: { summary: 'module whose export host says what a gateway presents, in place of the environment' },
  BETTER_COMPUTE_TLS_INTERVAL_MS: { summary: 'how often TLS files are looked at (default 60000)' },
  BETTER_COMPUTE_TLS: { summary: 'folder of the TLS files (default <home>/tls)' },
  BETTER_COMPUTE_OPERATOR_TOKEN: { summary: 'bearer of the operator API', secret: true },
  BETTER_COMPUTE_OPERATOR_TOKEN_FILE: { summary: 'file with the bearer of the operator API' },
  BETTER_COMPUTE_AUDIT_PIN: { summary: 'pin of the audit key, for rotation verify' },
  BETTER_COMPUTE_ACTOR: { summary: 'name recorded for what the CLI does' },
  BETTER_COMPUTE_LOG_LEVEL: { summary: 'trace, debug, info, warn, error or fatal' },
  BETTER_COMPUTE_TRUST_DOMAIN: { summary: 'trust domain of the deployment' },
  BETTER_COMPUTE_APPROVER_KEYS: { summary: 'public keys of the approvers: .pub files of batch keygen, comma-separated' },
  BETTER_COMPUTE_APPROVER_PASSPHRASE: { summary: 'opens an encrypted approver key', secret: true },
  BETTER_COMPUTE_APPROVER_THRESHOLD: { summary: 'how many of the approvers must sign; required with their keys' },
  BETTER_COMPUTE_UNBATCHED_PER_HOUR: { summary: 'destructive commands that a machine runs in an hour without a batch (default 0)' },
  BETTER_COMPUTE_APPROVER_SET_SIGNATURES: { summary: 'files of batch sign-approvers for a changed approver set, comma-separated' },
  BETTER_COMPUTE_OIDC_ISSUER: { summary: 'issuer of access tokens that the operator API takes; without it the operator token alone' },
  BETTER_COMPUTE_OIDC_AUDIENCE: { summary: 'audience that those tokens name' },
  BETTER_COMPUTE_OIDC_JWKS: { summary: 'keys of that issuer: an https address, or the path of a file' },
  BETTER_COMPUTE_TRUST_VERSION: { summary: 'lowest trust version to publish' },
  BETTER_COMPUTE_CACHE: { summary: 'folder of fetched engines' },
  BETTER_COMPUTE_SEED: { summary: 'told by bcd ramdisk to the program of --after-jump: folder of what the image was given' },
  BETTER_COMPUTE_NODE: { summary: 'told likewise: the machine' },
  BETTER_COMPUTE_RUN: { summary: 'told likewise: the run' },
  BETTER_COMPUTE_BOOTED: { summary: 'told likewise: kexec or firmware' },
  BETTER_COMPUTE_READY: { summary: 'json: print the ready line on stdout' },
  BETTER_COMPUTE_EXIT_WITH_PARENT: { summary: '1: end when stdin closes' },
  BETTER_COMPUTE_TEST_ONLY: { summary: 'spelled out by tests that crash a process on purpose' },
  BETTER_COMPUTE_TEST_ONLY_CRASH_AT: { summary: 'where a test crashes the process' },
  BETTER_COMPUTE_DEMONSTRATION_ONLY_ROTATION_TIMES: {
    summary: 'yes-for-demonstrations-only:<overlapMs>,<marginMs>,<workerLifetimeMs>; never in production',
  },
});

export const isEnvName = (name: string): boolean => Object.hasOwn(envNames, name);

export const isSecretEnv = (name: string): boolean => isEnvName(name) && envNames[name]?.secret === true;
