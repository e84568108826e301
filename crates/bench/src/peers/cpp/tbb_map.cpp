// tbb::concurrent_unordered_map and tbb::concurrent_hash_map behind a C interface for batches.

#include <type_traits>

#include <tbb/concurrent_hash_map.h>
#include <tbb/concurrent_unordered_map.h>

#include "batches.hpp"

namespace {

// The split-ordered list.
template <class K, class V>
struct Unordered {
    using Key = K;
    using Value = V;

    tbb::concurrent_unordered_map<Key, Value, Hash> map;

    bool insert(const Key& key, const Value& value) { return map.emplace(key, value).second; }

    bool lookup(const Key& key, Word* sum) const {
        auto found = map.find(key);
        if (found == map.end()) return false;
        *sum += word_of(found->second);
        return true;
    }

    // Values longer than a word are copied, which is not safe beside readers: the library has nothing for that.
    bool update(const Key& key, const Value& value) {
        auto found = map.find(key);
        if (found == map.end()) return false;
        if constexpr (std::is_same_v<Value, Word>) {
            __atomic_store_n(&found->second, value, __ATOMIC_RELEASE);
        } else {
            found->second = value;
        }
        return true;
    }

    // Not safe beside other threads: the library has no concurrent erase.
    bool remove(const Key& key) { return map.unsafe_erase(key) != 0; }
};

// The table with a lock for each bucket and each entry.
template <class K, class V>
struct Locked {
    using Key = K;
    using Value = V;

    struct Compare {
        std::size_t hash(const Key& key) const { return Hash()(key); }
        bool equal(const Key& one, const Key& other) const { return one == other; }
    };
    using Map = tbb::concurrent_hash_map<Key, Value, Compare>;

    Map map;

    bool insert(const Key& key, const Value& value) { return map.insert(typename Map::value_type(key, value)); }

    bool lookup(const Key& key, Word* sum) const {
        typename Map::const_accessor found;
        if (!map.find(found, key)) return false;
        *sum += word_of(found->second);
        return true;
    }

    bool update(const Key& key, const Value& value) {
        typename Map::accessor found;
        if (!map.find(found, key)) return false;
        found->second = value;
        return true;
    }

    bool remove(const Key& key) { return map.erase(key); }
};

}  // namespace

extern "C" {

void* tbb_unordered_map_new(std::size_t key_len, std::size_t value_len) {
    return make_batches<Unordered>(key_len, value_len);
}
void* tbb_hash_map_new(std::size_t key_len, std::size_t value_len) { return make_batches<Locked>(key_len, value_len); }
void tbb_map_free(void* map) { delete static_cast<Batches*>(map); }
Word tbb_map_run(void* map, int operation, const void* keys, std::size_t n, Word* sum) {
    return static_cast<Batches*>(map)->run(operation, keys, n, sum);
}
}
