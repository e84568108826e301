//! Hash maps in shared heaps.

/// Implements [`Shareable`](super::Shareable) for a map. The caller has the map's `Core` and
/// `HEADER_LEN` in scope. The second argument says whether a key may have several values.
macro_rules! shareable_map {
    ($map:ident, $multi:literal) => {
        impl<K, V, M> $crate::shared::Shareable<M> for $map<K, V, M>
        where
            K: $crate::Key + ?Sized,
            V: $crate::Stored + ?Sized,
            M: ::remanent_pmem::Medium,
        {
            type Member = Core<K, V, M, $multi>;

            fn header_len() -> u64 {
                HEADER_LEN
            }

            fn create_in(
                site: $crate::shared::Site<M>,
            ) -> ::std::result::Result<Self, ::remanent_pmem::Error> {
                let options = $crate::options::MapOptions::new();
                Ok($map { core: ::std::sync::Arc::new(Core::create_at(site, &options)?) })
            }

            fn find(
                site: $crate::shared::Site<M>,
            ) -> ::std::result::Result<Self::Member, ::remanent_pmem::Error> {
                Core::load(site)
            }

            fn finish(
                core: ::std::sync::Arc<Self::Member>,
            ) -> ::std::result::Result<Self, ::remanent_pmem::Error> {
                core.take_count()?;
                Ok($map { core })
            }

            fn inspect(&self) -> $crate::Result<$crate::shared::Inspection> {
                self.core.inspect()
            }
        }
    };
}

pub(crate) use shareable_map;
