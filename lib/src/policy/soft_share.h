// What a soft share comes to: what nobody claims is divided among those who may use more than their
// hard shares, by their weights, each up to its soft share. Pure.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpufence {

// Shares in thousandths of a percent.
struct SoftTenant {
  uint32_t hard;
  uint32_t soft;
  uint32_t weight;  // not 0
};

// Of what is used at `rate` lately a container claims a little more, so that it can grow, and no
// more than its hard share.
uint32_t ClaimOf(uint32_t rate, uint32_t hard);

// The share of `own` where `free` is left beside all claims. `others` want more than they may as
// well. At most kMostSoftTenants of them count.
inline constexpr size_t kMostSoftTenants = 64;
uint32_t SoftShareOf(SoftTenant own, uint32_t free, const SoftTenant* others, size_t count);

}  // namespace gpufence
