/**
 * Enrolment: the sealed join token, the string a person carries, the signed join answer and the proof of a renewal.
 *
 * Invariants: a token opens only with the join encryption key and only in its trust domain; an answer counts only when the
 * pinned JoinService key signed it for this nonce and this CSR; a renewal counts only for the key it renews.
 *
 * What it does not do: say whether a token is used up, expired or revoked, or keep a replay cache (services/join/,
 * services/renew.ts).
 */
export { approverSetPinForm, encodeJoinBundle, isApproverSetPin, type JoinBundle, parseJoinBundle } from './join-bundle.ts';
export { signJoinResponse, type VerifyJoinResponseOptions, verifyJoinResponse } from './join-response.ts';
export { type JoinTokenClaims, joinSecretBytes, openJoinToken, sealJoinToken } from './join-token.ts';
export { type ControlPlanePins, encodePinsFile, joinBundleUnder, parsePinsFile } from './pins-file.ts';
export { type RenewStatement, renewStatement, renewStatementId, signRenewProof, verifyRenewProof } from './renew.ts';
