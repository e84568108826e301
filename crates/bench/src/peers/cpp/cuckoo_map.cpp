// libcuckoo's cuckoohash_map behind a C interface for batches.

#include <libcuckoo/cuckoohash_map.hh>

#include "batches.hpp"

namespace {

template <class K, class V>
struct Cuckoo {
    using Key = K;
    using Value = V;

    libcuckoo::cuckoohash_map<Key, Value, Hash> map;

    bool insert(const Key& key, const Value& value) { return map.insert(key, value); }

    bool lookup(const Key& key, Word* sum) const {
        return map.find_fn(key, [sum](const Value& value) { *sum += word_of(value); });
    }

    bool update(const Key& key, const Value& value) { return map.update(key, value); }

    bool remove(const Key& key) { return map.erase(key); }
};

}  // namespace

extern "C" {

void* cuckoo_map_new(std::size_t key_len, std::size_t value_len) { return make_batches<Cuckoo>(key_len, value_len); }
void cuckoo_map_free(void* map) { delete static_cast<Batches*>(map); }
Word cuckoo_map_run(void* map, int operation, const void* keys, std::size_t n, Word* sum) {
    return static_cast<Batches*>(map)->run(operation, keys, n, sum);
}
}
