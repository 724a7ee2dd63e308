// What queries are told of an account.
#pragma once

#include "policy/account.h"
#include "policy/view.h"

namespace gpufence {

inline Held HeldOn(Account* account) {
  return {account->LimitBytes(), account->UsedBytes(), account->oversold()};
}

}  // namespace gpufence
