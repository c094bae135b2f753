#pragma once

#include <string>

#include "registry/language/value.h"

namespace trainrun {

/// Whether the value of an environment variable must not be written to a file.
/// `section`: the recipe's key under which it stands.
bool may_be_secret(const std::string& variable, const std::string& value, const std::string& section);

/// Whether a variable of this name holds a secret, such as a password or a token, whatever its value.
bool is_named_as_secret(const std::string& variable);

/// From now on, what is said on the console and in log.txt has `shown` in place of this value. One of less than four
/// characters would be found everywhere, and stays.
void hide_secret(const std::string& value, const std::string& shown);
std::string without_secrets(std::string text);

/// `recipe`, in source form, with those `${env:…}` again that `kept` (of interpolate_but_secrets) holds at the same
/// places. `num_kept`: how many.
Value with_secrets_kept(Value recipe, const Value& kept, size_t& num_kept);

}  // namespace trainrun
