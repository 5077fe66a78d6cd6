/** Go's crypto/x509 as a judge. */
import { findGo } from './go-judge.ts';
import { describeJudge } from './verification.ts';

describeJudge('Go crypto/x509', findGo);
