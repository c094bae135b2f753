#include "runner/foresight/link_costs.h"

#include <algorithm>
#include <cmath>

namespace trainrun {
namespace {

/// (n-1)/n
double others(int64_t n) { return static_cast<double>(n - 1) / static_cast<double>(n); }

double ring_seconds(int64_t n, double bytes, const Link& link) {
  return static_cast<double>(n - 1) * link.latency + others(n) * bytes / link.bandwidth;
}

double one_all_reduce(int64_t n, double bytes, const Link& link) {
  return std::min(ring_all_reduce_seconds(n, bytes, link), tree_all_reduce_seconds(n, bytes, link));
}

double one_broadcast(int64_t n, double bytes, const Link& link) {
  return std::log2(static_cast<double>(n)) * (link.latency + bytes / link.bandwidth);
}

}  // namespace

double ring_all_reduce_seconds(int64_t n, double bytes, const Link& link) { return 2 * ring_seconds(n, bytes, link); }

double tree_all_reduce_seconds(int64_t n, double bytes, const Link& link) {
  if (n == 1) return 0;
  return 2 * std::log2(static_cast<double>(n)) * link.latency + 2 * bytes / link.bandwidth;
}

double all_reduce_seconds(const Cluster& cluster, double bytes) {
  return one_all_reduce(cluster.ranks_per_node, bytes, cluster.intra) +
         one_all_reduce(cluster.num_nodes(), bytes, cluster.inter);
}

double all_gather_seconds(const Cluster& cluster, double bytes) {
  return ring_seconds(cluster.ranks_per_node, bytes, cluster.intra) +
         ring_seconds(cluster.num_nodes(), bytes, cluster.inter);
}

double broadcast_seconds(const Cluster& cluster, double bytes) {
  return one_broadcast(cluster.ranks_per_node, bytes, cluster.intra) +
         one_broadcast(cluster.num_nodes(), bytes, cluster.inter);
}

double all_reduce_sent_bytes(int64_t n, double bytes) { return 2 * others(n) * bytes; }
double all_gather_sent_bytes(int64_t n, double bytes) { return others(n) * bytes; }
double broadcast_sent_bytes(int64_t n, double bytes) { return others(n) * bytes; }

}  // namespace trainrun
