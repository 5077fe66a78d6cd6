import assert from 'node:assert/strict';
import { httpRefusalOf, isGrpcContentType, refusalTrailers } from '../../gateway/grpc/metadata.ts';

describe('gRPC metadata', () => {
  it('TRN-016, TRN-022 knows the two content types and their parameters', () => {
    for (const good of ['application/grpc', 'application/grpc+proto', 'Application/gRPC', 'application/grpc; charset=x'])
      assert.equal(isGrpcContentType(good), true, good);
    for (const bad of [undefined, '', 'application/json', 'application/grpc+json', 'application/grpcx', 'text/application/grpc'])
      assert.equal(isGrpcContentType(bad), false, String(bad));
    assert.equal(httpRefusalOf({ ':method': 'POST', 'content-type': 'application/json' }), 415);
    assert.equal(httpRefusalOf({ ':method': 'GET', 'content-type': 'application/grpc' }), 405);
    assert.equal(httpRefusalOf({ ':method': 'POST', 'content-type': 'application/grpc' }), null);
  });

  it('TRN-045 gives pushback under both names, rounded up to seconds for retry-after', () => {
    const wire = { grpc: 14, http: 503, reason: 'draining', message: 'x', pushbackMs: 1_001 };
    assert.deepEqual(refusalTrailers(wire), {
      'grpc-status': '14',
      'grpc-message': 'x',
      'x-bc-reason': 'draining',
      'grpc-retry-pushback-ms': '1001',
      'retry-after': '2',
    });
    assert.equal('retry-after' in refusalTrailers({ ...wire, pushbackMs: null }), false);
  });
});
