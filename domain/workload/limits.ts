/** How much of the token service one asker may use: enough for a metadata service that renews early, too little for a signing oracle. */
export const workloadLimits = Object.freeze({
  /** Tokens of one instance, over all replicas of the broker; the host asks no oftener either. */
  tokensPerMinute: 30,
  /** Questions of one session that wait for their answers. */
  underWayPerSession: 4,
});
