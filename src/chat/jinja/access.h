// a.b and a['b']: Python attributes and items as jinja2's sandbox lets templates see them.
#pragma once

#include <optional>

#include "chat/jinja/value.h"

namespace sluice::jinja {

// object.name: the attribute, else the item. Undefined when there is neither. `name` is a string.
Value get_attribute(const Value& object, const Value& name);
// object[key]: the item, else for a string the attribute. Undefined when there is neither.
Value get_item(const Value& object, const Value& key);
// The attribute alone.
std::optional<Value> find_attribute(const Value& object, const std::string& name);

}  // namespace sluice::jinja
