#pragma once

#include <cstdint>

namespace trainrun {

/// A connection: seconds until the first byte arrives, and bytes a second after that.
struct Link {
  double latency = 0;
  double bandwidth = 1;
};

/// Ranks on nodes that are alike.
struct Cluster {
  int64_t world_size = 1;
  int64_t ranks_per_node = 1;  // divides world_size
  Link intra;                  // of each rank to those of its node
  Link inter;                  // of each node to the others: its ranks share it
  int64_t num_nodes() const { return world_size / ranks_per_node; }
};

// What a collective of n ranks takes, in seconds, where every rank gives `bytes` (of an all-gather and a
// reduce-scatter: the whole, n times a rank's part). L is a link's latency, b its bandwidth.
//
//   all-reduce, ring             2 (n-1) L + 2 (n-1)/n bytes / b
//   all-reduce, double tree      2 log2(n) L + 2 bytes / b
//   all-gather, reduce-scatter   (n-1) L + (n-1)/n bytes / b      a ring
//   broadcast                    log2(n) (L + bytes / b)          a binomial tree
//
// Of the two all-reduces the faster counts. Over several nodes each collective is one among the ranks of a node and one
// among the nodes: there the ranks of a node hand over `bytes` together, through the one connection that they share.
// Source: Thakur et al. 2005, "Optimization of Collective Communication Operations in MPICH"; Sanders et al. 2009,
// "Two-tree algorithms for full bandwidth broadcast, reduction and scan"; both as NCCL uses them.

double ring_all_reduce_seconds(int64_t n, double bytes, const Link& link);
double tree_all_reduce_seconds(int64_t n, double bytes, const Link& link);
double all_reduce_seconds(const Cluster& cluster, double bytes);
double all_gather_seconds(const Cluster& cluster, double bytes);
double broadcast_seconds(const Cluster& cluster, double bytes);

// What one of n ranks sends, in bytes: in a ring, and of a broadcast the mean over ranks.

double all_reduce_sent_bytes(int64_t n, double bytes);
double all_gather_sent_bytes(int64_t n, double bytes);
double broadcast_sent_bytes(int64_t n, double bytes);

}  // namespace trainrun
